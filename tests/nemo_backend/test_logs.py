"""The formats of NeMo and Megatron: every shape of line. Common tests of all formats are in
tests/benchmarks/logs/test_log_formats.py."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.benchmarks.logs.formats import (
    KINDS,
    LOGS,
    MEGATRON_START,
    by_attempt,
    duplicates,
    lines,
    nemo,
    read,
    skipped,
    steps,
)

# --- whole logs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "attempts", "batch"),
    [
        ("nemo-2.7.3-validation.log", "nemo", {1: range(12)}, 8),
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


# --- lines --------------------------------------------------------------------------------------------

LINES: dict[str, list[dict[str, Any]]] = yaml.safe_load((Path(__file__).parent / "log_lines.yml").read_text())


@pytest.mark.parametrize("row", LINES["read"])
def test_lines(row: dict[str, Any]) -> None:
    (step,) = steps(read(row["kind"], row["text"] + "\n"))
    assert (step.step, step.seconds, step.excluded_because) == (5, row["seconds"], None)
    assert step.loss == pytest.approx(row.get("loss"), rel=0, abs=0, nan_ok=True)
    assert step.framework_tflops_per_device == row.get("tflops")
    assert step.framework_tokens_per_second_per_device == row.get("tokens")
    assert step.other_losses == row.get("others")


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


# --- numbers, restarts ------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("kind", "seconds", "digit"),
    [
        ("nemo", 4.07, 0.001),
        ("nemo", 0.05429, 0.00001),
        ("nemo", 10730.0, 10.0),
        ("nemo", 0.0, 0.0),
        ("megatron", 400.0, 0.0001),
    ],
)
def test_what_the_last_printed_digit_is_worth(kind: str, seconds: float, digit: float) -> None:
    assert KINDS[kind]().seconds_resolution(seconds) == digit
    assert KINDS[kind]().rate_resolution(seconds) == (0.1 if kind == "megatron" else digit)
