"""The formats of NeMo and Megatron: every shape of line and paint, live reading. What holds for every format is in
tests/benchmarks/logs/test_log_formats.py."""

import io
from pathlib import Path

import pytest

from benchmarks.reading import read_log
from benchmarks.values import Step
from nemo_backend.logs import LOG_FORMATS, follow_log
from nemo_backend.progress_bar_log import FIRST_STEPS_TIME
from tests.benchmarks.logs.formats import (
    KINDS,
    LOGS,
    MEGATRON_START,
    by_attempt,
    duplicates,
    lines,
    megatron,
    nemo,
    numbers,
    paint,
    read,
    skipped,
    steps,
)

# --- whole logs ---------------------------------------------------------------------------------------


def log_steps(name: str, kind: str) -> list[Step]:
    return steps(read(kind, (LOGS / name).read_bytes()))


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
    found = log_steps("megatron-bridge-restart.log", "megatron")
    assert (found[0].seconds, found[0].loss, found[0].framework_tflops_per_device) == (24.5132, 11.85, 146.9)
    left_out = [(s.step, s.excluded_because, s.loss) for s in found if s.excluded_because]
    assert left_out == [(2, "skipped iteration", None)]


def test_a_paint_has_the_time_of_its_step_or_of_the_one_before() -> None:
    """Where the timer stops after the bar is painted, the paint that validation adds has the step's own time."""
    late = log_steps("nemo-bar-2.7.3-timed-late-validation.log", "nemo-bar")
    assert [(s.step, s.seconds) for s in late[:5]] == [(0, None), (1, 8.78), (2, 3.19), (3, 1.57), (4, 3.73)]
    assert [s.step for s in late if s.excluded_because == FIRST_STEPS_TIME] == [1]
    fresh = log_steps("nemo-bar-24.09-order.log", "nemo-bar")
    assert [(s.step, s.seconds) for s in fresh[:3]] == [(0, 3.89), (1, 1.78), (2, 0.198)]
    assert not [s for s in fresh if s.excluded_because]


def test_lines_are_preferred_to_the_bar_beside_them() -> None:
    text = "".join("\r" + paint(n + 1, f"{n}.0") + "   \n" + nemo(n) + "\n" for n in range(3))
    found = read_log.detect(io.BytesIO(text.encode()), LOG_FORMATS)
    assert found is not None
    assert found.name == "nemo"
    assert numbers(list(found.read(io.BytesIO(text.encode())))) == [0, 1, 2]


# --- lines --------------------------------------------------------------------------------------------

REAL = (
    "[default7]: [2026-09-14 15:08:27.273656] iteration        5/  102400 | consumed samples:          352 | "
    "elapsed time per iteration (ms): 6922.3 | throughput per GPU (TFLOP/s/GPU): 62.0 | "
    "learning rate: 1.289062E-04 | global batch size:     8 | lm loss: 6.457796E+00 | loss scale: 1.0 | "
    "grad norm: 4.096 | num zeros: 760881152.0 | "
    "params norm: 2241.466 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
NEMO_RATES = " | TFLOPS_per_GPU: 4.05e+02 | tokens_per_sec_per_gpu: 1.073e+04"
MEGATRON_TOKENS = "tokens per GPU (tokens/s/GPU): 12130.4/12525.5 | x: 3 | learning"
NO_STEP = "Training epoch 0, iteration 5/inf | reduced_train_loss: 2.5 | train_step_timing in s: 1.5"
NOT_FINITE = "gradient norm not finite"


def norm(printed: str, **more: int) -> str:
    return megatron(5, **more).replace("grad norm: 1.0", f"grad norm: {printed}")


@pytest.mark.parametrize(
    ("kind", "text", "seconds", "loss", "tflops", "tokens"),
    [
        ("nemo", nemo(5, more=""), 12.64, 11.03, None, None),
        ("nemo", nemo(5, seconds="4.07", loss="1.058e-05"), 4.07, 1.058e-05, None, None),
        ("nemo", nemo(5, seconds="4", loss="nan"), 4.0, float("nan"), None, None),
        ("nemo", nemo(5, more=" | val_loss: 3.624 | val_ppl: 17.57"), 12.64, 11.03, None, None),
        ("nemo", nemo(5, more=NEMO_RATES), 12.64, 11.03, 405, 10730),
        ("nemo", NO_STEP, 1.5, 2.5, None, None),
        ("nemo", '{"log": "' + nemo(5) + '"}', 12.64, 11.03, None, None),
        ("megatron", REAL, 6.9223, 6.457796, 62.0, None),
        ("megatron", REAL.replace("6922.3", "4000.0/4100.2").replace("62.0", "40.4/39.9"), 4.0, 6.457796, 40.4, None),
        ("megatron", REAL.replace("lm loss", "loss"), 6.9223, 6.457796, 62.0, None),
        ("megatron", REAL[: REAL.index(" number of nan")], 6.9223, 6.457796, 62.0, None),  # an older fork ends there
        ("megatron", megatron(5).replace(" [2026-04-27 00:00:01] ", " "), 12.64, 11.03, None, None),
        ("megatron", megatron(5)[23:].replace("       5/      99", "5/99"), 12.64, 11.03, None, None),
        ("megatron", megatron(5, ms="821.7"), 0.8217, 11.03, None, None),
        ("megatron", megatron(5).replace("learning", MEGATRON_TOKENS), 12.64, 11.03, None, 12130.4),
        ("megatron", megatron(5, loss=""), 12.64, None, None, None),
    ],
)  # fmt: skip
def test_lines(
    kind: str, text: str, seconds: float, loss: float | None, tflops: float | None, tokens: float | None
) -> None:
    (step,) = steps(read(kind, text + "\n"))
    assert (step.step, step.seconds, step.excluded_because) == (5, seconds, None)
    assert step.loss == pytest.approx(loss, rel=0, abs=0, nan_ok=True)
    assert (step.framework_tflops_per_device, step.framework_tokens_per_second_per_device) == (tflops, tokens)


@pytest.mark.parametrize(
    ("kind", "text", "because"),
    [
        ("nemo", nemo(5, more=" | grad_norm: nan"), NOT_FINITE),
        ("nemo", nemo(5, more=" | grad_norm: inf | lr_2: 1"), NOT_FINITE),
        ("nemo", nemo(5, more=" | grad_norm: 1.5"), None),
        *(("megatron", norm(printed), NOT_FINITE) for printed in ("nan", "inf", "-inf", "NaN", "nan/1.5")),
        ("megatron", norm("nan", skipped=1), "skipped iteration"),
        ("megatron", megatron(5, skipped=10, loss=""), "skipped iteration"),
        ("megatron", megatron(5, nan=1), "nan iteration"),
        ("megatron", megatron(5, nan=1, skipped=1, loss="nan"), "nan iteration"),
    ],
)
def test_why_a_step_is_left_out(kind: str, text: str, because: str | None) -> None:
    (step,) = steps(read(kind, text + "\n"))
    assert (step.step, step.seconds, step.excluded_because) == (5, 12.64, because)


@pytest.mark.parametrize("end", ["", " | x: 3 |"])  # read quickly, and with care
def test_the_batch_of_a_line(end: str) -> None:
    for kind, text, batch in [
        ("nemo", nemo(5, more=f" | consumed_samples: 8{end}"), 128),
        ("nemo", nemo(5, more=end).replace("global_batch_size: 128 | ", ""), None),
        ("megatron", megatron(5) + end, 2),
        ("megatron", megatron(5).replace("global batch size:     2 | ", "") + end, None),
    ]:
        assert [s.framework_global_batch_size for s in steps(read(kind, text + "\n"))] == [batch]


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("nemo", "Training epoch 0, iteration 5", "no iteration"),
        ("nemo", "Training epoch 0, iteration 5/99", "truncated: no"),
        ("nemo", nemo(5).partition(" | train_step")[0], "truncated: no train_step_timing in s"),
        ("nemo", nemo(5, seconds="12.[NeMo W]"), "train_step_timing in s is not a number"),
        ("nemo", nemo(5, seconds="-1"), "seconds can't be"),
        ("nemo", nemo(5, seconds="nan"), "seconds can't be"),
        ("nemo", nemo(5, loss="1.\0\0"), "reduced_train_loss is not a number"),
        ("nemo", nemo(5).replace("global_step: 5", "global_step: 5.5"), "global_step is not a whole number"),
        ("nemo", nemo(5).replace("global_step: 5", "x: 5").replace("epoch 0", "epoch 2"), "which epoch 2 needs"),
        ("nemo", nemo(5) + " | lr: 3", "lr stands twice"),
        ("megatron", " iteration    5/   10 | consumed samples:  8 | elapsed", "truncated: no number of nan"),
        ("megatron", REAL[: REAL.index(" | loss scale")], "truncated: no number of nan"),
        ("megatron", REAL[: REAL.index(" learning")], "truncated: no lm loss"),
        ("megatron", REAL.replace("6922.3", "69[rank5]22.3"), "is not a number"),
        ("megatron", REAL.replace("6922.3", "4000.0/"), "is not a number"),
        ("megatron", REAL.replace("6922.3", "nan"), "seconds can't be"),
        ("megatron", REAL.replace("6.457796E+00", "6.45WARNING"), "lm loss is not a number"),
        ("megatron", REAL.replace("skipped iterations:   0", "skipped iterations: x"), "iterations is not a number"),
        ("megatron", REAL.replace("elapsed time per iteration", "elapsed"), "truncated: no elapsed time"),
        ("megatron", REAL + " loss scale: 1.0 |", "loss scale stands twice"),
        ("nemo-bar", paint(5, "4.00", loss="1.2.3"), "reduced_train_loss is not a number"),
        ("nemo-bar", paint(5, "4.00", seconds="-3.0"), "seconds can't be"),
        ("nemo-bar", paint(5, "x"), "global_step is not a number"),
        ("nemo-bar", paint(5, "2e+3"), "global_step=2e+3 is rounded"),
        ("nemo-bar", paint(5, None), "no global_step"),
        ("nemo-bar", paint(5, "4.00").replace("reduced_train_loss=11.00, ", ""), "no reduced_train_loss"),
        ("nemo-bar", paint(5, "4.00")[:-20], "does not end"),
        ("nemo-bar", paint(5, "4.00")[:-20] + "[NeMo W 2024-06-17 08:36:41 x:480] y]", "does not end"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(kind: str, text: str, reason: str) -> None:
    events = read(kind, "noise\n" + text + "\n")
    ((number, found),) = skipped(events)
    assert number == 2
    assert reason in found
    assert not steps(events)


# --- numbers, restarts, paints ------------------------------------------------------------------------


def test_the_global_step_goes_on_where_an_epoch_begins_the_iteration_again() -> None:
    text = "".join(
        nemo(n).replace(f"epoch 0, iteration {n}", f"epoch {n // 5}, iteration {n % 5}") + "\n" for n in range(12)
    )
    assert by_attempt(read("nemo", text)) == {1: list(range(12))}


def test_a_line_for_several_iterations_is_one_step_at_its_printed_number() -> None:
    found = steps(read("megatron", "".join(megatron(n, ms=f"{n * 10}.0") + "\n" for n in range(10, 60, 10))))
    assert [(s.step, s.seconds) for s in found] == [(10, 0.1), (20, 0.2), (30, 0.3), (40, 0.4), (50, 0.5)]


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


def test_a_line_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "log"
    new = follow_log(path, 1)
    text = lines("megatron", 1, 2)
    path.write_text(text[:-20])
    assert [s.step for s in new()] == [1]
    path.write_text(text)
    assert [s.step for s in new()] == [2]
