"""The format of MaxText: every shape of step line, restarts and duplicates. What holds for every format is in
tests/benchmarks/logs/test_log_formats.py."""

import io
import math

import pytest

from benchmarks.backend import LogEvent
from benchmarks.values import Step
from jax_backend.logs import MaxTextLog
from tests.benchmarks.logs.formats import JAX_LOGS, duplicates, skipped, steps
from tests.benchmarks.logs.formats import MAXTEXT_START as START

SEED_LINE = (
    "completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, Tokens/s/device: 1035.970, "
    "total_weights: 524288, loss: 0.000"
)


def line(step: int, seconds: str = "1.353", loss: str = "9.123") -> str:
    return (
        f"completed step: {step}, seconds: {seconds}, TFLOP/s/device: 0.009, Tokens/s/device: 13403.141, "
        f"total_weights: 256, loss: {loss}, lm_loss: 9.123, perplexity: 427.609"
    )


def old_line(step: int) -> str:
    return f"completed step: {step}, seconds: 1.353, TFLOP/s: 1.731, loss: 9.1"


def read(text: str | bytes) -> list[LogEvent]:
    return list(MaxTextLog().read(io.BytesIO(text.encode() if isinstance(text, str) else text)))


def by_attempt(text: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for step in steps(read(text)):
        found.setdefault(step.attempt, []).append(step.step)
    return found


def lines(*numbers: int) -> str:
    return "".join(line(n) + "\n" for n in numbers)


def test_real_logs() -> None:
    events = read((JAX_LOGS / "maxtext-0.2.5.log").read_bytes())
    assert [s.step for s in steps(events)] == list(range(12))
    assert steps(events)[1] == Step(
        step=1,
        seconds=0.218,
        loss=6.082,
        tokens=None,
        framework_seconds=0.218,
        framework_tflops_per_device=0.001,
        framework_tokens_per_second_per_device=1173.747,
    )
    assert not skipped(events)
    assert not duplicates(events)
    found = steps(read((JAX_LOGS / "maxtext-0.2.5-profiler.log").read_bytes()))
    assert [s.step for s in found] == list(range(12))
    profiled = [s for s in found if s.excluded_because == "profiler"]
    assert [s.step for s in profiled] == [4, 5, 7, 8]
    assert all(s.seconds is None and s.loss is not None for s in profiled)


VINTAGES = {
    line(5): (1.353, 9.123, 0.009, 13403.141),
    SEED_LINE: (7.908, 0.0, 460.48, 1035.97),
    old_line(3): (1.353, 9.1, 1.731, None),
    "completed step: 9, seconds: 1.341, TFLOP/s/device: 257.929, Tokens/s/device: 36653.244, loss: 0.500": (
        1.341, 0.5, 257.929, 36653.244,
    ),
    "completed step: 3, seconds: 1e-05, TFLOP/s/device: inf, Tokens/s/device: 2.5e+06, loss: 8.000": (
        1e-05, 8.0, math.inf, 2.5e6,
    ),
    "completed step: 3, seconds: 2.000, live slice count: 2, TFLOP/s/device: 1.000, "
    "Tokens/s/device: 2.000, total_weights: 256.0, loss: 8.000, lm_loss: 0.000, perplexity: 1.000, "
    "moe_lb_loss: 0.010000, diag: raw_grad_norm=1.000000000e+00 grad_norm=n/a": (2.0, 8.0, 1.0, 2.0),
}  # fmt: skip


@pytest.mark.parametrize("text", VINTAGES)
def test_vintages(text: str) -> None:
    (step,) = steps(read(text + "\n"))
    seconds, loss, tflops, tokens = VINTAGES[text]
    assert (step.seconds, step.loss) == (seconds, loss)
    assert step.framework_seconds == seconds
    assert step.framework_tflops_per_device == tflops
    assert step.framework_tokens_per_second_per_device == tokens
    assert step.tokens is None


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf"])
def test_loss_that_is_no_number(loss: str) -> None:
    (step,) = steps(read(line(5, loss=loss) + "\n"))
    assert str(step.loss) == loss


@pytest.mark.parametrize(
    ("text", "seconds", "because"),
    [
        ("completed profiler activation/deactivation step: 9, total_weights: 256, loss: 6.058", None, "profiler"),
        ("[Rampup Batch Size Phase], completed step: 9, seconds: 1.000, loss: 6.058", 1.0, "batch size rampup"),
    ],
)
def test_steps_that_are_no_measurement_are_named(text: str, seconds: float | None, because: str) -> None:
    (step,) = steps(read(text + "\n"))
    assert (step.step, step.seconds, step.loss, step.excluded_because) == (9, seconds, 6.058, because)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("completed step: 5\n", "nothing after the step"),
        ("completed step: five, seconds: 1.000, loss: 2.000\n", "no step number"),
        ("completed step: 99999999999999999999, seconds: 1.000, loss: 2.000\n", "no step number"),
        ("completed step: 5, loss: 2.000\n", "no seconds"),
        ("completed step: 5, seconds: 1.0\n", "no loss"),
        ("completed step: 5, seconds: nan, loss: 2.000\n", "seconds can't be 'nan'"),
        ("completed step: 5, seconds: 1e999, loss: 2.000\n", "seconds can't be"),
        ("completed step: 5, seconds: 0.0I1121 13:00, loss: 2.000\n", "seconds is not a number"),
        ("completed step: 5, seconds: 0.\0\0\0\0, loss: 2.000\n", "seconds is not a number"),
        ("completed step: 5, seconds: 0.\xff, loss: 2.000\n", "seconds is not a number"),
        ("completed step: 5, seconds: 0.100, TFLOP/s: x, loss: 2.000\n", "TFLOP/s is not a number"),
        ("completed profiler activation/deactivation step: 5\n", "nothing after the step"),
    ],
)
def test_unreadable_lines_name_what_is_wrong(text: str, reason: str) -> None:
    ((number, found),) = skipped(read("noise\n" + text))
    assert number == 2
    assert reason in found
    assert not steps(read(text))


def test_last_line_without_newline_but_whole() -> None:
    assert [s.step for s in steps(read(lines(8) + SEED_LINE))] == [8, 49]


def test_noise_is_not_reported() -> None:
    assert read("completed\nCompleted eval step: 3, seconds: 1.0\ncompleted saving\nstep: 5, seconds: 1\n") == []


@pytest.mark.parametrize(
    ("numbers", "attempts", "further"),
    [
        ((5, 5, 6, 6), {1: [5, 6]}, 2),
        ((5, 6, 5, 6), {1: [5, 6]}, 2),
        ((0, 0, 1, 1), {1: [0, 1]}, 2),
        ((5, 7, 6, 8), {1: [5, 7, 6, 8]}, 0),  # a late report of a step that was not read yet
        ((5, 6, 7, 5, 6), {1: [5, 6, 7], 2: [5, 6]}, 0),
        ((0, 1, 2, 0, 1), {1: [0, 1, 2], 2: [0, 1]}, 0),
        ((0, 1, 0, 1), {1: [0, 1], 2: [0, 1]}, 0),
        ((8, 9, 4, 5, 1, 2), {1: [8, 9], 2: [4, 5], 3: [1, 2]}, 0),
    ],
)
def test_without_labels(numbers: tuple[int, ...], attempts: dict[int, list[int]], further: int) -> None:
    assert by_attempt(lines(*numbers)) == attempts
    assert duplicates(read(lines(*numbers))) == further


@pytest.mark.parametrize("text", [*VINTAGES, START, "0: " + line(5), "\x1b[1mcompleted step: \x1b[0m5, seconds: 1"])
def test_recognises(text: str) -> None:
    assert MaxTextLog().recognises(text.encode())


@pytest.mark.parametrize("text", ["", "Completed step: build", "[2025] iteration 5/ 100 | elapsed time", "\0" * 99])
def test_does_not_recognise(text: str) -> None:
    assert not MaxTextLog().recognises(text.encode())
