"""The format of MaxText: every shape of step line, restarts and duplicates. Common tests of all formats are in
tests/benchmarks/logs/test_log_formats.py."""

import io

import pytest

from benchmarks.backend import LogEvent
from benchmarks.values import Step
from jax_backend.logs import MaxTextLog
from tests.benchmarks.logs.formats import JAX_LOGS, duplicates, skipped, steps
from tests.benchmarks.logs.formats import MAXTEXT_START as START
from tests.jax_backend.asked import each


def line(step: int, seconds: str = "1.353", loss: str = "9.123") -> str:
    return (
        f"completed step: {step}, seconds: {seconds}, TFLOP/s/device: 0.009, Tokens/s/device: 13403.141, "
        f"total_weights: 256, loss: {loss}, lm_loss: 9.123, perplexity: 427.609"
    )


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


@each("step_lines", "line", "figures")
def test_step_lines_of_every_vintage(line: str, figures: list[float | None]) -> None:
    assert MaxTextLog().recognises(line.encode())
    (step,) = steps(read(line + "\n"))
    own = (step.seconds, step.loss, step.framework_tflops_per_device, step.framework_tokens_per_second_per_device)
    assert [*own] == figures
    assert (step.framework_seconds, step.tokens) == (step.seconds, None)


def test_the_loss_excludes_load_balancing_and_mtp() -> None:
    terms = ", moe_lb_loss: 0.020000, main_model_loss: 9.143, mtp_loss: 1.200"
    (step,) = steps(read(line(5, loss="10.343") + terms + "\n"))
    assert (step.loss, step.other_losses) == (9.123, {"load_balancing": 0.02, "mtp": 1.2})


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


@each("unreadable_lines", "line", "why")
def test_unreadable_lines_name_what_is_wrong(line: str, why: str) -> None:
    ((number, found),) = skipped(read(f"noise\n{line}\n"))
    assert number == 2
    assert why in found
    assert not steps(read(line + "\n"))


@each("attempts", "numbers", "steps", "further")
def test_steps_without_labels(numbers: list[int], steps: dict[int, list[int]], further: int) -> None:
    assert by_attempt(lines(*numbers)) == steps
    assert duplicates(read(lines(*numbers))) == further


@pytest.mark.parametrize("text", [START, "0: " + line(5), "\x1b[1mcompleted step: \x1b[0m5, seconds: 1"])
def test_recognises(text: str) -> None:
    assert MaxTextLog().recognises(text.encode())


@pytest.mark.parametrize("text", ["", "Completed step: build", "[2025] iteration 5/ 100 | elapsed time", "\0" * 99])
def test_does_not_recognise(text: str) -> None:
    assert not MaxTextLog().recognises(text.encode())
