"""The formats of NeMo and Megatron: every shape of line and paint, live reading. What holds for every format is in
tests/benchmarks/logs/test_log_formats.py."""

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.reading import read_log
from nemo_backend.logs import LOG_FORMATS
from nemo_backend.progress_bar_log import FIRST_STEPS_TIME
from tests.benchmarks.logs.formats import (
    KINDS,
    LOGS,
    MEGATRON_START,
    by_attempt,
    duplicates,
    lines,
    nemo,
    numbers,
    paint,
    read,
    skipped,
    steps,
)

# --- whole logs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "attempts", "batch"),
    [
        ("nemo-2.7.3-validation.log", "nemo", {1: range(12)}, 8),
        ("nemo-bar-2.7.3.log", "nemo-bar", {1: range(39)}, 2),
        ("nemo-bar-24.09-order.log", "nemo-bar", {1: range(40)}, 2),
        ("nemo-bar-2.7.3-timed-late-validation.log", "nemo-bar", {1: range(12)}, 8),
        ("megatron-bridge-restart.log", "megatron", {1: range(1, 10), 2: range(10, 21)}, 128),
        ("megatron-lm-interval-10.log", "megatron", {1: range(10, 101, 10)}, 128),
    ],
)
def test_logs(name: str, kind: str, attempts: dict[int, range], batch: int) -> None:
    events = read(kind, (LOGS / name).read_bytes())
    assert by_attempt(events) == {attempt: list(steps) for attempt, steps in attempts.items()}
    assert not skipped(events)
    assert not duplicates(events)
    assert {step.framework_global_batch_size for step in steps(events)} == {batch}


def test_what_megatron_printed() -> None:
    found = steps(read("megatron", (LOGS / "megatron-bridge-restart.log").read_bytes()))
    assert (found[0].seconds, found[0].loss, found[0].framework_tflops_per_device) == (24.5132, 11.85, 146.9)
    left_out = [(s.step, s.excluded_because, s.loss) for s in found if s.excluded_because]
    assert left_out == [(2, "skipped iteration", None)]


def test_a_paint_has_the_time_of_its_step_or_of_the_one_before() -> None:
    """Where the timer stops after the bar is painted, the paint that validation adds has the step's own time."""
    late, fresh = (
        steps(read("nemo-bar", (LOGS / f"nemo-bar-{name}.log").read_bytes()))
        for name in ("2.7.3-timed-late-validation", "24.09-order")
    )
    assert [(s.step, s.seconds) for s in late[:5]] == [(0, None), (1, 8.78), (2, 3.19), (3, 1.57), (4, 3.73)]
    assert [s.step for s in late if s.excluded_because == FIRST_STEPS_TIME] == [1]
    assert [(s.step, s.seconds) for s in fresh[:3]] == [(0, 3.89), (1, 1.78), (2, 0.198)]
    assert not [s for s in fresh if s.excluded_because]


def test_lines_are_preferred_to_the_bar_beside_them() -> None:
    text = "".join("\r" + paint(n + 1, f"{n}.0") + "   \n" + nemo(n) + "\n" for n in range(3))
    found = next(read_log.formats_of(io.BytesIO(text.encode()), LOG_FORMATS))
    assert found.name == "nemo"
    assert numbers(list(found.read(io.BytesIO(text.encode())))) == [0, 1, 2]


# --- lines --------------------------------------------------------------------------------------------

LINES: dict[str, list[dict[str, Any]]] = yaml.safe_load((Path(__file__).parent / "log_lines.yml").read_text())


@pytest.mark.parametrize("row", LINES["read"])
def test_lines(row: dict[str, Any]) -> None:
    (step,) = steps(read(row["kind"], row["text"] + "\n"))
    assert (step.step, step.seconds, step.excluded_because) == (5, row["seconds"], None)
    assert step.loss == pytest.approx(row.get("loss"), rel=0, abs=0, nan_ok=True)
    assert step.framework_tflops_per_device == row.get("tflops")
    assert step.framework_tokens_per_second_per_device == row.get("tokens")


@pytest.mark.parametrize("row", LINES["excluded"])
def test_why_a_step_is_left_out(row: dict[str, Any]) -> None:
    (step,) = steps(read(row["kind"], row["text"] + "\n"))
    assert (step.step, step.seconds, step.excluded_because) == (5, 12.64, row["because"])


@pytest.mark.parametrize("row", LINES["unreadable"])
def test_what_cannot_be_read_is_named_with_its_line(row: dict[str, Any]) -> None:
    events = read(row["kind"], "noise\n" + row["text"] + "\n")
    ((number, found),) = skipped(events)
    assert number == 2
    assert row["reason"] in found
    assert not steps(events)


# --- numbers, restarts, paints ------------------------------------------------------------------------


def test_the_global_step_goes_on_where_an_epoch_begins_the_iteration_again() -> None:
    text = "".join(
        nemo(n).replace(f"epoch 0, iteration {n}", f"epoch {n // 5}, iteration {n % 5}") + "\n" for n in range(12)
    )
    assert by_attempt(read("nemo", text)) == {1: list(range(12))}


def test_megatrons_start_is_printed_by_another_rank_than_its_steps() -> None:
    text = f"0: {MEGATRON_START}" + lines("megatron", 1, 2, label="7: ")
    text += f"0: {MEGATRON_START}" + lines("megatron", 3, 4, label="7: ")
    assert by_attempt(read("megatron", text)) == {1: [1, 2], 2: [3, 4]}


@pytest.mark.parametrize(
    ("kind", "line", "attempts"),
    [
        ("megatron", "using world size: 8, data-parallel size: 8, ", {1, 2}),
        ("megatron", "using world size: 8 and model-parallel size: 2 ", {1, 2}),
        ("megatron", "> initializing torch distributed ...", {1, 2}),
        ("megatron", "[before the start of training step] datetime: 2025-11-13 16:26:12 ", {1, 2}),
        ("nemo", "GPU available: False, used: False", {1, 2}),
        ("nemo", "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/8", {1, 2}),
        ("nemo", "GPU available but not used. You can set it by doing `Trainer(accelerator='gpu')`.", {1}),
        ("nemo", "Initializing distributed: GLOBAL_RANK: 5, MEMBER: 6/8", {1}),
    ],
)
def test_every_start_line_is_known(kind: str, line: str, attempts: set[int]) -> None:
    assert set(by_attempt(read(kind, lines(kind, 1) + line + "\n" + lines(kind, 2)))) == attempts


def test_a_step_is_its_last_paint_by_its_global_step() -> None:
    """Painted when the counter moves, with the metrics of the step before, and again with its own; a later epoch."""
    text = "".join(
        "\r" + paint(n % 10 + 1, f"{told}.0", seconds=f"{told}.5").replace("Epoch 0", f"Epoch {n // 10}")
        for n in range(20)
        for told in (max(0, n - 1), n)
    )
    found = steps(read("nemo-bar", text))
    assert [(s.step, s.seconds) for s in found] == [(n, n + 0.5) for n in range(20)]
    scaled = paint("2.00kit", "2010.0").replace(" 47%|████▋     | 2.00kit", " 2.00kit")
    assert numbers(read("nemo-bar", scaled + "\n")) == [2010]


def test_the_batch_of_a_bar_that_prints_samples_alone() -> None:
    """NeMo 24.09's. What a validation repaints is the same step; of rounded samples nothing is known."""
    painted = zip([1, 2, 2, 3, 4, 5], ["128.0", "256.0", "256.0, x=3", "384.0", "1.28e+5", "640.0"], strict=True)
    text = "".join("\r" + paint(n, f"{n - 1}.0")[:-1] + f", consumed_samples={samples}]" for n, samples in painted)
    assert [s.framework_global_batch_size for s in steps(read("nemo-bar", text))] == [None, 128, 128, None, 128]


@pytest.mark.parametrize(
    ("kind", "seconds", "digit"),
    [
        ("nemo", 4.07, 0.001),
        ("nemo", 0.05429, 0.00001),
        ("nemo", 10730.0, 10.0),
        ("nemo", 0.0, 0.0),
        ("megatron", 400.0, 0.0001),
        ("nemo-bar", 11.2, 0.1),  # printed as 11.20: the zero is padding
        ("nemo-bar", 0.198, 0.001),
    ],
)
def test_what_the_last_printed_digit_is_worth(kind: str, seconds: float, digit: float) -> None:
    assert KINDS[kind]().seconds_resolution(seconds) == digit
    assert KINDS[kind]().rate_resolution(seconds) == (0.1 if kind == "megatron" else digit)
