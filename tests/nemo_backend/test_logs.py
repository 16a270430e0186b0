"""The formats of NeMo and Megatron: every shape of line and paint, live reading. What holds for
every format is in tests/benchmarks/logs/test_log_formats.py."""

import io
import math
from pathlib import Path

import pytest

from benchmarks.logs import ingest
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


def bar(step: int) -> str:
    return "\r" + paint(step + 1, f"{step}.0") + "   "


@pytest.mark.parametrize(
    ("name", "kind", "attempts", "batch"),
    [
        ("nemo-2.7.3-validation.log", "nemo", {1: range(12)}, {8}),
        ("nemo-bar-2.7.3.log", "nemo-bar", {1: range(39)}, {2}),
        ("nemo-bar-24.09-order.log", "nemo-bar", {1: range(40)}, {2}),
        ("nemo-bar-2.7.3-timed-late-validation.log", "nemo-bar", {1: range(12)}, {8}),
        ("megatron-bridge-restart.log", "megatron", {1: range(1, 10), 2: range(10, 21)}, {128}),
        ("megatron-lm-interval-10.log", "megatron", {1: range(10, 101, 10)}, {128}),
    ],
)
def test_logs(name: str, kind: str, attempts: dict[int, range], batch: set[int | None]) -> None:
    events = read(kind, (LOGS / name).read_bytes())
    assert by_attempt(events) == {attempt: list(steps) for attempt, steps in attempts.items()}
    assert not skipped(events)
    assert not duplicates(events)
    assert {step.framework_global_batch_size for step in steps(events)} == batch


def test_what_megatron_printed() -> None:
    found = steps(read("megatron", (LOGS / "megatron-bridge-restart.log").read_bytes()))
    assert (found[0].seconds, found[0].loss, found[0].framework_tflops_per_device) == (24.5132, 11.85, 146.9)
    assert [(s.step, s.excluded_because, s.loss) for s in found if s.excluded_because] == [
        (2, "skipped iteration", None)
    ]


def test_a_validation_repaints_its_step_with_its_own_time() -> None:
    """The timer stops after the bar is painted: the paint that validation adds has the step's own time."""
    found = steps(read("nemo-bar", (LOGS / "nemo-bar-2.7.3-timed-late-validation.log").read_bytes()))
    assert [(s.step, s.seconds) for s in found[:6]] == [
        (0, None),
        (1, 8.78),
        (2, 3.19),
        (3, 1.57),
        (4, 3.73),
        (5, 3.73),
    ]
    assert [s.step for s in found if s.excluded_because == FIRST_STEPS_TIME] == [1]


def test_a_bar_painted_when_its_metrics_change_has_the_steps_own_time() -> None:
    found = steps(read("nemo-bar", (LOGS / "nemo-bar-24.09-order.log").read_bytes()))
    assert [(s.step, s.seconds) for s in found[:3]] == [(0, 3.89), (1, 1.78), (2, 0.198)]
    assert not [s for s in found if s.excluded_because]


def test_lines_are_preferred_to_the_bar_beside_them() -> None:
    text = "".join(bar(n) + "\n" + nemo(n) + "\n" for n in range(3))
    found = ingest.detect(io.BytesIO(text.encode()), LOG_FORMATS)
    assert found is not None
    assert found.name == "nemo"
    assert numbers(list(found.read(io.BytesIO(text.encode())))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "seconds", "loss", "tflops", "tokens"),
    [
        (nemo(5, more=""), 12.64, 11.03, None, None),
        (nemo(5, seconds="4.07", loss="1.058e-05"), 4.07, 1.058e-05, None, None),
        (nemo(5, seconds="4", loss="nan"), 4.0, math.nan, None, None),
        (nemo(5, more=" | val_loss: 3.624 | val_ppl: 17.57"), 12.64, 11.03, None, None),
        (nemo(5, more=" | TFLOPS_per_GPU: 4.05e+02 | tokens_per_sec_per_gpu: 1.073e+04"), 12.64, 11.03, 405, 10730),
        (
            "Training epoch 0, iteration 5/9 | train_step_timing in s: 1.5 | peak_memory_usage: 70833405952 | "
            "max_memory_reserved: 8 | grad_norm: inf | reduced_train_loss: 2 | lr: 0 | global_step: 5",
            1.5, 2.0, None, None,
        ),
        (
            "Training epoch 0, iteration 5/inf | reduced_train_loss: 2.5 | train_step_timing in s: 1.5",
            1.5, 2.5, None, None,
        ),
        ('{"log": "' + nemo(5) + '"}', 12.64, 11.03, None, None),
    ],
)  # fmt: skip
def test_nemo_lines(text: str, seconds: float, loss: float, tflops: float | None, tokens: float | None) -> None:
    (step,) = steps(read("nemo", text + "\n"))
    found = (step.step, step.seconds, step.framework_tflops_per_device, step.framework_tokens_per_second_per_device)
    assert found == (5, seconds, tflops, tokens)
    assert step.loss == loss or (math.isnan(loss) and step.loss is not None and math.isnan(step.loss))


def test_the_global_step_goes_on_where_an_epoch_begins_the_iteration_again() -> None:
    text = "".join(
        nemo(n).replace(f"epoch 0, iteration {n}", f"epoch {n // 5}, iteration {n % 5}") + "\n" for n in range(12)
    )
    assert by_attempt(read("nemo", text)) == {1: list(range(12))}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Training epoch 0, iteration 5", "no iteration"),
        ("Training epoch 0, iteration 5/99", "truncated: no"),
        (nemo(5).partition(" | train_step")[0], "truncated: no train_step_timing in s"),
        (nemo(5).partition(" | reduced")[0], "truncated: no"),
        (nemo(5, seconds="12.[NeMo W]"), "train_step_timing in s is not a number"),
        (nemo(5, seconds="-1"), "seconds can't be"),
        (nemo(5, seconds="nan"), "seconds can't be"),
        (nemo(5, loss="1.\0\0"), "reduced_train_loss is not a number"),
        (nemo(5).replace("global_step: 5", "global_step: 5.5"), "global_step is not a whole number"),
        (nemo(5).replace("global_step: 5", "x: 5").replace("epoch 0", "epoch 2"), "which epoch 2 needs"),
        (nemo(5) + " | lr: 3", "lr stands twice"),
    ],
)
def test_nemo_lines_that_cannot_be_read(text: str, reason: str) -> None:
    ((number, found),) = skipped(read("nemo", "noise\n" + text + "\n"))
    assert number == 2
    assert reason in found
    assert not steps(read("nemo", text + "\n"))


REAL = (
    "[default7]: [2026-09-14 15:08:27.273656] iteration        5/  102400 | consumed samples:          352 | "
    "elapsed time per iteration (ms): 6922.3 | throughput per GPU (TFLOP/s/GPU): 62.0 | "
    "learning rate: 1.289062E-04 | global batch size:     8 | lm loss: 6.457796E+00 | loss scale: 1.0 | "
    "grad norm: 4.096 | num zeros: 760881152.0 | "
    "params norm: 2241.466 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)


@pytest.mark.parametrize(
    ("text", "seconds", "loss", "tflops", "tokens"),
    [
        (REAL, 6.9223, 6.457796, 62.0, None),
        (REAL.replace("6922.3", "4000.0/4100.2").replace("62.0", "40.4/39.9"), 4.0, 6.457796, 40.4, None),
        (REAL.replace("lm loss", "loss"), 6.9223, 6.457796, 62.0, None),
        (megatron(5).replace(" [2026-04-27 00:00:01] ", " "), 12.64, 11.03, None, None),
        (megatron(5)[23:].replace("       5/      99", "5/99"), 12.64, 11.03, None, None),
        (megatron(5, ms="821.7"), 0.8217, 11.03, None, None),
        (
            megatron(5).replace("learning", "tokens per GPU (tokens/s/GPU): 12130.4/12525.5 | x: 3 | learning"),
            12.64, 11.03, None, 12130.4,
        ),
        (megatron(5, loss=""), 12.64, None, None, None),
    ],
)  # fmt: skip
def test_megatron_lines(
    text: str, seconds: float, loss: float | None, tflops: float | None, tokens: float | None
) -> None:
    (step,) = steps(read("megatron", text + "\n"))
    assert (step.step, step.seconds, step.loss) == (5, seconds, loss)
    assert (step.framework_tflops_per_device, step.framework_tokens_per_second_per_device) == (tflops, tokens)
    assert step.excluded_because is None


@pytest.mark.parametrize(
    ("text", "because"),
    [
        (megatron(5, skipped=1), "skipped iteration"),
        (megatron(5, skipped=10, loss=""), "skipped iteration"),
        (megatron(5, nan=1), "nan iteration"),
        (megatron(5, nan=1, skipped=1, loss="nan"), "nan iteration"),
    ],
)
def test_megatron_names_the_iterations_it_left_out(text: str, because: str) -> None:
    (step,) = steps(read("megatron", text + "\n"))
    assert (step.step, step.seconds, step.excluded_because) == (5, 12.64, because)


@pytest.mark.parametrize("norm", ["nan", "inf", "-inf", "NaN", "nan/1.5"])
def test_megatron_gradient_norm_that_is_not_finite(norm: str) -> None:
    (step,) = steps(read("megatron", megatron(5).replace("grad norm: 1.0", f"grad norm: {norm}") + "\n"))
    assert (step.excluded_because, step.loss) == ("gradient norm not finite", 11.03)
    (left_out,) = steps(read("megatron", megatron(5, skipped=1).replace("norm: 1.0", f"norm: {norm}") + "\n"))
    assert left_out.excluded_because == "skipped iteration"


@pytest.mark.parametrize(
    ("more", "because"),
    [(" | grad_norm: nan", True), (" | grad_norm: inf | lr_2: 1", True), (" | grad_norm: 1.5", False)],
)
def test_nemo_gradient_norm(more: str, because: bool) -> None:
    (step,) = steps(read("nemo", nemo(5, more=more) + "\n"))
    assert step.excluded_because == ("gradient norm not finite" if because else None)


@pytest.mark.parametrize("end", ["", " | x: 3 |"])  # read quickly, and with care
def test_the_batch_of_a_line(end: str) -> None:
    for text, batch in [
        (nemo(5, more=f" | consumed_samples: 8{end}"), 128),
        (nemo(5, more=end).replace("global_batch_size: 128 | ", ""), None),
    ]:
        assert [s.framework_global_batch_size for s in steps(read("nemo", text + "\n"))] == [batch]
    assert [s.framework_global_batch_size for s in steps(read("megatron", megatron(5) + end + "\n"))] == [2]
    without = megatron(5).replace("global batch size:     2 | ", "")
    assert [s.framework_global_batch_size for s in steps(read("megatron", without + end + "\n"))] == [None]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" iteration    5/   10 | consumed samples:  8 | elapsed", "truncated: no number of nan"),
        (REAL[: REAL.index(" | loss scale")], "truncated: no number of nan"),
        (REAL[: REAL.index(" number of nan")], None),  # whole up to a bar: an older fork may end there
        (REAL[: REAL.index(" learning")], "truncated: no lm loss"),
        (REAL.replace("6922.3", "69[rank5]22.3"), "is not a number"),
        (REAL.replace("6922.3", "4000.0/"), "is not a number"),
        (REAL.replace("6922.3", "nan"), "seconds can't be"),
        (REAL.replace("6922.3", "-1.0"), "seconds can't be"),
        (REAL.replace("6.457796E+00", "6.45WARNING"), "lm loss is not a number"),
        (REAL.replace("skipped iterations:   0", "skipped iterations: x"), "skipped iterations is not a number"),
        (REAL.replace("elapsed time per iteration", "elapsed"), "truncated: no elapsed time"),
        (REAL + " loss scale: 1.0 |", "loss scale stands twice"),
    ],
)
def test_megatron_lines_that_cannot_be_read(text: str, reason: str | None) -> None:
    events = read("megatron", "noise\n" + text + "\n")
    if reason is None:
        assert numbers(events) == [5]
        return
    ((number, found),) = skipped(events)
    assert number == 2
    assert reason in found
    assert not steps(events)


def test_a_line_for_several_iterations_is_one_step_at_its_printed_number() -> None:
    found = steps(read("megatron", "".join(megatron(n, ms=f"{n * 10}.0") + "\n" for n in range(10, 60, 10))))
    assert [(s.step, s.seconds) for s in found] == [(10, 0.1), (20, 0.2), (30, 0.3), (40, 0.4), (50, 0.5)]


def test_megatrons_start_is_printed_by_another_rank_than_its_steps() -> None:
    text = f"0: {MEGATRON_START}" + lines("megatron", 1, 2, label="7: ")
    text += f"0: {MEGATRON_START}" + lines("megatron", 3, 4, label="7: ")
    assert by_attempt(read("megatron", text)) == {1: [1, 2], 2: [3, 4]}


def test_every_start_line_is_known() -> None:
    for start in (
        "using world size: 8, data-parallel size: 8, ",
        "using world size: 8 and model-parallel size: 2 ",
        "> initializing torch distributed ...",
        "[before the start of training step] datetime: 2025-11-13 16:26:12 ",
    ):
        assert set(by_attempt(read("megatron", lines("megatron", 1) + start + "\n" + lines("megatron", 2)))) == {1, 2}
    for start in ("GPU available: False, used: False", "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/8"):
        assert set(by_attempt(read("nemo", nemo(1) + "\n" + start + "\n" + nemo(2) + "\n"))) == {1, 2}
    for other in (
        "GPU available but not used. You can set it by doing `Trainer(accelerator='gpu')`.",
        "Initializing distributed: GLOBAL_RANK: 5, MEMBER: 6/8",
    ):
        assert set(by_attempt(read("nemo", nemo(1) + "\n" + other + "\n" + nemo(2) + "\n"))) == {1}


def test_a_step_is_its_last_paint_by_its_global_step() -> None:
    """Painted when the counter moves, with the metrics of the step before, and again with its own; a later epoch."""
    text = "".join(
        "\r" + paint(n % 10 + 1, f"{told}.0", seconds=f"{told}.5").replace("Epoch 0", f"Epoch {n // 10}")
        for n in range(20)
        for told in (max(0, n - 1), n)
    )
    found = steps(read("nemo-bar", text))
    assert [(s.step, s.seconds) for s in found] == [(n, n + 0.5) for n in range(20)]


def test_the_batch_of_a_bar_that_prints_samples_alone() -> None:
    """NeMo 24.09's. What a validation repaints is the same step; of rounded samples nothing is known."""
    painted = zip([1, 2, 2, 3, 4, 5], ["128.0", "256.0", "256.0, x=3", "384.0", "1.28e+5", "640.0"], strict=True)
    text = "".join("\r" + paint(n, f"{n - 1}.0")[:-1] + f", consumed_samples={samples}]" for n, samples in painted)
    assert [s.framework_global_batch_size for s in steps(read("nemo-bar", text))] == [None, 128, 128, None, 128]


@pytest.mark.parametrize("counter", ["2.00k/10.0k", "2.00kit"])
def test_a_scaled_counter_does_no_harm_and_a_rounded_global_step_cannot_be_read(counter: str) -> None:
    rounded = paint(counter, "2e+3").replace(" 47%|████▋     | 2.00kit", " 2.00kit")
    assert skipped(read("nemo-bar", rounded + "\n")) == [(1, "global_step=2e+3 is rounded")]
    assert numbers(read("nemo-bar", rounded.replace("2e+3", "2010.0") + "\n")) == [2010]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (paint(5, "4.00", loss="1.2.3"), "reduced_train_loss is not a number"),
        (paint(5, "4.00", seconds="-3.0"), "seconds can't be"),
        (paint(5, "4.00", seconds="nan"), "seconds can't be"),
        (paint(5, "x"), "global_step is not a number"),
        (paint(5, "4.00").replace("reduced_train_loss=11.00, ", ""), "no reduced_train_loss"),
        (paint(5, "4.00")[:-20], "does not end"),
        (paint(5, "4.00")[:-20] + "[NeMo W 2024-06-17 08:36:41 x:480] y]", "does not end"),
    ],
)
def test_paints_that_cannot_be_read(text: str, reason: str) -> None:
    events = read("nemo-bar", "noise\n" + text + "\n")
    ((number, found),) = skipped(events)
    assert number == 2
    assert reason in found
    assert not steps(events)


@pytest.mark.parametrize(
    ("kind", "seconds", "digit"),
    [
        ("nemo", 4.07, 0.001),
        ("nemo", 0.1021, 0.0001),
        ("nemo", 11.2, 0.01),
        ("nemo", 0.05429, 0.00001),
        ("nemo", 123.4, 0.1),
        ("nemo", 0.0, 0.0),
        ("megatron", 4.0, 0.0001),
        ("megatron", 400.0, 0.0001),
        ("nemo-bar", 11.2, 0.1),  # printed as 11.20: the zero is padding
        ("nemo-bar", 3.13, 0.01),
        ("nemo-bar", 0.198, 0.001),
    ],
)
def test_what_the_last_printed_digit_is_worth(kind: str, seconds: float, digit: float) -> None:
    assert KINDS[kind]().seconds_resolution(seconds) == digit


@pytest.mark.parametrize(
    ("kind", "rate", "digit"),
    [("nemo", 405.3, 0.1), ("nemo", 10730.0, 10.0), ("megatron", 45.0, 0.1), ("nemo-bar", 405.0, 1.0)],
)
def test_what_the_last_printed_digit_of_a_rate_is_worth(kind: str, rate: float, digit: float) -> None:
    assert KINDS[kind]().rate_resolution(rate) == digit


def test_a_line_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "log"
    new = follow_log(path, 1)
    text = lines("megatron", 1, 2)
    path.write_text(text[:-20])
    assert [s.step for s in new()] == [1]
    path.write_text(text)
    assert [s.step for s in new()] == [2]
