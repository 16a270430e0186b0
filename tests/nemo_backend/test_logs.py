"""nemo_backend/logs.py and the three formats: every shape of line, restarts, live reading, and what must
never matter (chunk sizes, prefixes, colours, noise, where a log was cut, garbage)."""

import io
import math
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise, permutations
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.backend import LogEvent, LogFormat
from benchmarks.logs import ingest
from benchmarks.logs.log_stream import LOOKAHEAD, LOOKBEHIND
from benchmarks.values import Step
from jax_backend.logs import MaxTextLog
from nemo_backend import logs, megatron_line_log, nemo_line_log
from nemo_backend.logs import LOG_FORMATS, follow_log
from nemo_backend.megatron_line_log import MegatronLog
from nemo_backend.nemo_line_log import NemoLog
from nemo_backend.progress_bar_log import FIRST_STEPS_TIME, NemoBarLog, as_tqdm_prints

LOGS = Path(__file__).parent / "logs"
JAX_LOGS = Path(__file__).parents[1] / "jax_backend" / "logs"
FORMAT_OF = {
    **dict.fromkeys(LOGS.glob("nemo-bar-*.log"), "nemo-bar"),
    LOGS / "nemo-2.7.3-validation.log": "nemo",
    **dict.fromkeys(LOGS.glob("megatron-*.log"), "megatron"),
    **dict.fromkeys(JAX_LOGS.glob("*.log"), "maxtext"),
}
KINDS = {"nemo": NemoLog, "megatron": MegatronLog, "nemo-bar": NemoBarLog}

NEMO_START = "GPU available: True (cuda), used: True\n"
MEGATRON_START = "> initializing torch distributed ...\n"
START = {"nemo": NEMO_START, "nemo-bar": NEMO_START, "megatron": MEGATRON_START}


def nemo(step: int, seconds: str = "12.64", loss: str = "11.03", more: str = " | consumed_samples: 2304") -> str:
    return (
        f"Training epoch 0, iteration {step}/99 | lr: 2.699e-06 | global_batch_size: 128 | global_step: {step} | "
        f"reduced_train_loss: {loss} | train_step_timing in s: {seconds}{more}"
    )


def megatron(step: int, ms: str = "12640.0", loss: str = "1.103000E+01", skipped: int = 0, nan: int = 0) -> str:
    return (
        f" [2026-04-27 00:00:01] iteration {step:8d}/      99 | consumed samples: {step:12d} | "
        f"elapsed time per iteration (ms): {ms} | learning rate: 1.000000E-04 | global batch size:     2 | "
        + (f"lm loss: {loss} | " if loss else "")
        + f"loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations: {skipped:3d} | "
        f"number of nan iterations: {nan:3d} |"
    )


def paint(counter: int | str, global_step: str | None, seconds: str | None = "12.60", loss: str = "11.00") -> str:
    """One paint of a bar, without the carriage return before it."""
    metrics = f", v_num=0, reduced_train_loss={loss}"
    metrics += "" if global_step is None else f", global_step={global_step}"
    metrics += "" if seconds is None else f", train_step_timing in s={seconds}"
    counted = f"{counter}/9999" if isinstance(counter, int) else counter
    return f"Epoch 0: :  47%|████▋     | {counted} [06:19<07:13{metrics}]"


def bar(step: int) -> str:
    return "\r" + paint(step + 1, f"{step}.0") + "   "


LINE = {"nemo": nemo, "megatron": megatron, "nemo-bar": lambda step: paint(step + 1, f"{step}.00")}
EVERY_FORMAT = pytest.mark.parametrize("kind", KINDS)


def read(kind: str, text: str | bytes, chunk_bytes: int = 1 << 20) -> list[LogEvent]:
    data = text.encode() if isinstance(text, str) else text
    return list(KINDS[kind](chunk_bytes).read(io.BytesIO(data)))


def steps(events: list[LogEvent]) -> list[Step]:
    return [e.step for e in events if e.step is not None]


def numbers(events: list[LogEvent]) -> list[int]:
    return [s.step for s in steps(events)]


def skipped(events: list[LogEvent]) -> list[tuple[int, str]]:
    return [(e.skipped.line, e.skipped.reason) for e in events if e.skipped is not None]


def duplicates(events: list[LogEvent]) -> int:
    return sum(e.duplicates for e in events)


def by_attempt(events: list[LogEvent]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for step in steps(events):
        found.setdefault(step.attempt, []).append(step.step)
    return found


def lines(kind: str, *numbers: int, label: str = "") -> str:
    return "".join(f"{label}{LINE[kind](n)}\n" for n in numbers)


# --- whole logs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "attempts"),
    [
        ("nemo-2.7.3-validation.log", "nemo", {1: range(12)}),
        ("nemo-bar-2.7.3.log", "nemo-bar", {1: range(39)}),
        ("nemo-bar-24.09-order.log", "nemo-bar", {1: range(40)}),
        ("nemo-bar-2.7.3-timed-late-validation.log", "nemo-bar", {1: range(12)}),
        ("megatron-bridge-restart.log", "megatron", {1: range(1, 10), 2: range(10, 21)}),
        ("megatron-lm-interval-10.log", "megatron", {1: range(10, 101, 10)}),
    ],
)
def test_logs(name: str, kind: str, attempts: dict[int, range]) -> None:
    events = read(kind, (LOGS / name).read_bytes())
    assert by_attempt(events) == {attempt: list(steps) for attempt, steps in attempts.items()}
    assert not skipped(events)
    assert not duplicates(events)


def test_what_nemo_printed() -> None:
    second = steps(read("nemo", (LOGS / "nemo-2.7.3-validation.log").read_bytes()))[1]
    assert second == Step(
        step=1, seconds=2.055, loss=5.868, tokens=None, framework_seconds=2.055, framework_global_batch_size=8
    )


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


def test_the_seeds_line() -> None:
    text = (
        "Epoch 0: : 100%|██████████| 100/100 [20:15<00:00, reduced_train_loss=6.370, global_step=99.00, "
        "consumed_samples=12800.0, train_step_timing in s=11.20]\n"
    )
    (step,) = steps(read("nemo-bar", text))
    assert (step.step, step.seconds, step.loss) == (99, 11.2, 6.37)


# --- detection --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FORMAT_OF, ids=lambda path: path.name)
def test_each_log_is_taken_by_one_format_whatever_their_order(path: Path) -> None:
    assert len(FORMAT_OF) == 8
    every: tuple[LogFormat, ...] = (MaxTextLog(), *LOG_FORMATS)
    for formats in permutations(every):
        with path.open("rb") as stream:
            found = ingest.detect(stream, formats)
        assert found is not None
        assert found.name == FORMAT_OF[path]


def test_lines_are_preferred_to_the_bar_beside_them() -> None:
    text = "".join(bar(n) + "\n" + nemo(n) + "\n" for n in range(3))
    found = ingest.detect(io.BytesIO(text.encode()), LOG_FORMATS)
    assert found is not None
    assert found.name == "nemo"
    assert numbers(list(found.read(io.BytesIO(text.encode())))) == [0, 1, 2]


OTHERS = (
    "Validation: iteration 1/5\nValidation DataLoader 0: 100%|██████████| 4/4 [00:01<00:00,  2.29it/s]\n"
    "\rEpoch 0: :   0%|          | 0/12 [00:00<?]\rEpoch 0:  8%|▊         | 1/12 [00:08<01:36, v_num=0]\n"
    "\rSanity Checking DataLoader 0:  50%|█████     | 1/2 [00:00<00:00, val_loss=3.0]\n"
    " validation loss at iteration 10 | lm loss value: 1.051E+01 | lm loss PPL: 3.6E+04 | \n"
    "saving checkpoint at iteration      10 to /results in torch_dist format\n"
    "Evaluating iter 1/10\n(min, max) time across ranks (ms):\nelapsed time per iteration (ms): 5\n"
    "Training epoch has begun\nEpoch 0: done\nEpoch 1/10\n"
)


@EVERY_FORMAT
def test_what_is_no_step(kind: str) -> None:
    assert read(kind, OTHERS) == []
    assert not KINDS[kind]().recognises(OTHERS.encode())
    assert numbers(read(kind, OTHERS + lines(kind, 1) + OTHERS + lines(kind, 2))) == [1, 2]


@EVERY_FORMAT
def test_other_formats_lines_are_no_steps(kind: str) -> None:
    others = "".join(lines(other, 1, 2) for other in KINDS if other != kind)
    assert read(kind, others) == []
    assert not KINDS[kind]().recognises(others.encode())


@EVERY_FORMAT
def test_recognises_behind_colours(kind: str) -> None:
    text = LINE[kind](3).replace("3", "\x1b[1m3\x1b[0m", 1)
    assert KINDS[kind]().recognises(text.encode())


# --- prefixes ---------------------------------------------------------------------------------


@EVERY_FORMAT
@pytest.mark.parametrize("rank", [None, 0, 12])
@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[default0]:",
        "retraining/0 [default0]:",
        "2026-01-02T03:04:05.678901Z ",
        "[2025-11-20T14:55:23+08:00] retraining/0 ",
        "[NeMo I 2026-01-01 00:00:00 nemo_logger:162] ",
        "(TrainWorker pid=123, ip=10.0.0.1) ",
        "\x1b[36m(TrainWorker pid=123)\x1b[0m ",
        "[20251121 12:10:29][rank-31/32][INFO ] [--------trainer.py:2488] : ",
        "noise\r",
        "\0\0\0\0",
        "x" * 5000,
    ],
)
def test_prefixes(kind: str, prefix: str, rank: int | None) -> None:
    label = "" if rank is None else f"{rank}: "
    (step,) = steps(read(kind, f"noise\n{label}{prefix}{LINE[kind](5)}\nnoise\n"))
    assert (step.step, step.seconds) in ((5, 12.64), (5, 12.6))
    forgotten = kind != "nemo-bar" and (len(prefix) > LOOKBEHIND or prefix == "noise\r")
    assert step.rank == (0 if forgotten else rank or 0)


@pytest.mark.parametrize("kind", ["nemo", "megatron"])
def test_ray_folds_reports(kind: str) -> None:
    text = f"(Worker pid=123) {LINE[kind](5)}\x1b[32m [repeated 9x across cluster]\x1b[0m\n"
    events = read(kind, text)
    assert numbers(events) == [5]
    assert duplicates(events) == 8


@EVERY_FORMAT
def test_colours_inside_the_line(kind: str) -> None:
    text = LINE[kind](5).replace("12", "\x1b[32m12\x1b[0m").replace(" 5", " \x1b[1m5\x1b[0m")
    (step,) = steps(read(kind, f"\x1b[36m{text}\x1b[0m\n"))
    assert (step.step, step.seconds) in ((5, 12.64), (5, 12.6))


@EVERY_FORMAT
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(kind: str, end: str) -> None:
    assert numbers(read(kind, end.join(["noise", LINE[kind](5), LINE[kind](6), ""]))) == [5, 6]


# --- one line of NeMo -------------------------------------------------------------------------


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


# --- one line of Megatron ---------------------------------------------------------------------

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
            "7: iteration       5/  292968 | consumed samples: 10240 | elapsed time per iteration (s): 35.8651 | "
            "lm loss: 1.3E+01 | number of skipped iterations:   0 | number of nan iterations:   0 | TFLOPs: 2",
            35.8651, 13.0, None, None,
        ),
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


# --- the batch --------------------------------------------------------------------------------


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
    ("name", "batch"),
    [
        ("nemo-bar-2.7.3.log", 2),
        ("nemo-bar-24.09-order.log", 2),
        ("nemo-bar-2.7.3-timed-late-validation.log", 8),
    ],
)
def test_the_batch_of_real_bars(name: str, batch: int) -> None:
    """Printed, and the same where only the samples are."""
    text = (LOGS / name).read_bytes()
    assert {s.framework_global_batch_size for s in steps(read("nemo-bar", text))} == {batch}
    samples_alone = text.replace(f"global_batch_size={batch}.000, ".encode(), b"")
    assert {s.framework_global_batch_size for s in steps(read("nemo-bar", samples_alone))} == {batch, None}


def test_the_batch_of_a_bar_that_prints_samples_alone() -> None:
    """NeMo 24.09's. What a validation repaints is the same step; of rounded samples nothing is known."""

    def painted(counter: int, samples: str, more: str = "") -> str:
        return "\r" + paint(counter, f"{counter - 1}.0")[:-1] + f", consumed_samples={samples}{more}]"

    samples = ["128.0", "256.0", "256.0", "384.0", "1.28e+5", "640.0"]
    pairs = zip([1, 2, 2, 3, 4, 5], samples, strict=True)
    text = "".join(painted(c, s, ", val_loss=3" * (n == 2)) for n, (c, s) in enumerate(pairs))
    assert [s.framework_global_batch_size for s in steps(read("nemo-bar", text))] == [None, 128, 128, None, 128]


def test_loss_that_is_no_number() -> None:
    (step,) = steps(read("megatron", megatron(5, loss="nan") + "\n"))
    assert step.loss is not None
    assert math.isnan(step.loss)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" iteration    5/   10 | consumed samples:  8 | elapsed", "truncated: no number of nan"),
        (REAL[: REAL.index(" | loss scale")], "truncated: no number of nan"),
        (REAL[: REAL.index(" number of nan")], None),  # whole up to a bar: an older fork may end there
        (REAL[: REAL.index(" learning")], "truncated: no lm loss"),
        (REAL.replace("6922.3", "69[rank5]22.3"), "is not a number"),
        (REAL.replace("6922.3", "4000.0/"), "is not a number"),
        (REAL.replace("6922.3", "nan"), "the time can't be"),
        (REAL.replace("6922.3", "-1.0"), "the time can't be"),
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


# --- cut and mingled, in every format ---------------------------------------------------------


@EVERY_FORMAT
def test_cut_last_line(kind: str) -> None:
    last = LINE[kind](10)
    for end in range(len(last) * 2 // 3, len(last) - 1):
        events = read(kind, lines(kind, 8, 9) + last[:end])
        if kind == "nemo" and "s: 12.64 | " in last[:end]:  # cut after all that is needed
            assert numbers(events) == [8, 9, 10]
        else:
            assert (numbers(events), skipped(events)) == ([8, 9], [(3, "truncated")])


@EVERY_FORMAT
def test_two_writers_on_one_line(kind: str) -> None:
    one, other = LINE[kind](5), LINE[kind](5)
    events = read(kind, one[:-30] + other.lstrip() + "\n" + lines(kind, 6))
    assert numbers(events) == [5, 6]
    assert skipped(events) == [(1, "mingled with another writer's line")]
    assert by_attempt(events) == {1: [5, 6]}


# --- duplicates and restarts ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["nemo", "megatron"])
def test_hosts_and_restarts_without_labels(kind: str) -> None:
    assert duplicates(read(kind, lines(kind, 5, 5, 6, 6))) == 2
    assert by_attempt(read(kind, lines(kind, 5, 6, 7, 5, 6))) == {1: [5, 6, 7], 2: [5, 6]}


def test_a_repaint_is_neither_a_step_nor_another_hosts() -> None:
    text = "".join(bar(n) * 3 for n in range(5))
    events = read("nemo-bar", text)
    assert by_attempt(events) == {1: [0, 1, 2, 3, 4]}
    assert duplicates(events) == 0


@EVERY_FORMAT
def test_start_line_is_a_restart(kind: str) -> None:
    start = START[kind]
    assert by_attempt(read(kind, start + lines(kind, 1, 2) + start + lines(kind, 3, 4))) == {1: [1, 2], 2: [3, 4]}
    assert by_attempt(read(kind, start + start + lines(kind, 1))) == {1: [1]}


@EVERY_FORMAT
def test_a_lower_step_is_a_restart(kind: str) -> None:
    assert by_attempt(read(kind, lines(kind, 5, 6, 7) + lines(kind, 3, 4))) == {1: [5, 6, 7], 2: [3, 4]}


@EVERY_FORMAT
def test_labelled_ranks(kind: str) -> None:
    def both(*steps: int) -> str:
        return "".join(lines(kind, n, label=f"{rank}: ") for n in steps for rank in (0, 1))

    events = read(kind, both(1, 2, 3))
    assert sorted(numbers(events)) == [1, 2, 3]
    assert duplicates(events) == 3
    assert set(by_attempt(read(kind, both(1, 2, 3) + both(1, 2)))) == {1, 2}


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


# --- the bar's counter ------------------------------------------------------------------------


def tqdm_number(value: float) -> str:
    """As Lightning's Tqdm prints a float: 3 digits where that is shorter, padded to 5 characters."""
    short = f"{value:.3g}".replace("e+0", "e+").replace("e-0", "e-")
    text = short if len(short) < len(str(value)) else str(value)
    if "e" not in text:
        text += "." if "." not in text and len(text) < 5 else ""
        text += "0" * (5 - len(text))
    return text


@pytest.mark.parametrize("step", [0, 7, 99, 995, 996, 1000, 1004, 1005, 1099, 1234, 2000, 12000, 12345, 123456])
def test_as_tqdm_prints(step: int) -> None:
    assert as_tqdm_prints(step) == float(tqdm_number(float(step)))


def fresh(first: int, last: int, offset: int = 0, one_metric: bool = False) -> str:
    """A bar painted when its counter moves, and again with the metrics of the step (NeMo 24.09)."""

    def metrics(step: int) -> tuple[str, str, str]:
        return tqdm_number(float(step)), "9.990" if one_metric else f"{5 + step % 50 / 10:.1f}00", "3.140"

    paints = []
    for step in range(first, last + 1):
        if step > first:
            paints.append(paint(step + 1 - offset, *metrics(step - 1)))
        paints.append(paint(step + 1 - offset, *metrics(step)))
    return "".join("\r" + p for p in paints)


def late(first: int, last: int) -> str:
    """A bar painted only when its counter moves, with the metrics of the step before, and once more at its end."""
    values = [(tqdm_number(float(s)), f"{5 + s % 50 / 10:.1f}00") for s in range(first, last + 1)]
    counters = [*range(first + 2, last + 2), last + 1]
    return "".join("\r" + paint(n, *value) for n, value in zip(counters, values, strict=True))


@pytest.mark.parametrize("paints", [fresh, late])
@pytest.mark.parametrize(
    ("first", "last"), [(0, 30), (980, 1020), (990, 1000), (1980, 2010), (11900, 12060), (99900, 100100)]
)
def test_rounded_global_steps_are_worked_out_from_the_counter(paints: object, first: int, last: int) -> None:
    assert callable(paints)
    events = read("nemo-bar", paints(first, last))
    assert not skipped(events)
    assert by_attempt(events) == {1: list(range(first, last + 1))}
    assert [s.seconds for s in steps(events)] == [5 + s % 50 / 10 for s in range(first, last + 1)]


def test_steps_alike_in_every_digit_are_still_counted() -> None:
    assert numbers(read("nemo-bar", fresh(1990, 2010, one_metric=True))) == list(range(1990, 2011))


def test_only_rounded_global_steps_are_taken_from_the_counter() -> None:
    assert numbers(read("nemo-bar", fresh(200_000, 200_020))) == list(range(200_000, 200_021))


def test_cut_off_after_the_first_paint_of_a_step() -> None:
    text = fresh(200_000, 200_020)
    whole = text[: text.rindex("\r")]
    assert numbers(read("nemo-bar", whole)) == list(range(200_000, 200_020))


def test_a_counter_that_began_again_is_not_believed() -> None:
    """Resumed at 200,000 while the counter starts at 1: where global_step is rounded, nothing fits."""
    events = read("nemo-bar", fresh(200_000, 200_003, offset=200_000))
    assert not steps(events)
    assert "does not fit the counter 1" in skipped(events)[0][1]


def test_a_later_epochs_counter_needs_an_exact_global_step() -> None:
    text = fresh(0, 9) + fresh(10, 19, offset=10).replace("Epoch 0", "Epoch 1")
    assert by_attempt(read("nemo-bar", text)) == {1: list(range(20))}
    rounded = fresh(199_990, 199_999) + fresh(200_000, 200_005, offset=200_000).replace("Epoch 0", "Epoch 1")
    events = read("nemo-bar", rounded)
    assert numbers(events) == list(range(199_990, 200_000))
    assert "the counter began again with epoch 1" in skipped(events)[-1][1]


@pytest.mark.parametrize("counter", ["2.00k/10.0k", "2.00kit"])
def test_a_scaled_counter(counter: str) -> None:
    rounded = paint(counter, "2e+3").replace(" 47%|████▋     | 2.00kit", " 2.00kit")
    ((_, reason),) = skipped(read("nemo-bar", rounded + "\n"))
    assert reason == "global_step=2e+3 is rounded and the counter 2.00k is scaled: the step is not known"
    exact = rounded.replace("2e+3", "2010.0")
    assert numbers(read("nemo-bar", exact + "\n")) == [2010]


@pytest.mark.parametrize("counter", ["6/?", "6it"])
def test_a_counter_without_a_total(counter: str) -> None:
    text = paint(counter, None).replace(" 47%|████▋     | 6it", " 6it")
    assert numbers(read("nemo-bar", text + "\n")) == [5]


def test_fields_in_any_order_and_more_of_them() -> None:
    text = (
        "Epoch 3:  60%|██████    | 6024/10000 [4:26:54<2:56:09, 2.64s/it, train_step_timing in s=2.590, "
        "val_loss=0.0917, global_step=6023.0, TFLOPS_per_GPU=405.0, v_num=d3c7, "
        "reduced_train_loss=2.52e-5][NeMo I 2024 x:1] Saving"
    )
    (step,) = steps(read("nemo-bar", "\x1b[A\r" + text + "\n"))
    assert (step.step, step.seconds, step.loss, step.framework_tflops_per_device) == (6023, 2.59, 2.52e-5, 405.0)


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


# --- the last digit ---------------------------------------------------------------------------


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


@given(st.floats(1e-3, 9e3))
def test_no_printed_time_is_further_off_than_half_a_digit(seconds: float) -> None:
    for kind, printed in (("nemo", f"{seconds:.4}"), ("nemo-bar", tqdm_number(seconds))):
        off = abs(float(printed) - seconds)
        assert off <= KINDS[kind]().seconds_resolution(float(printed)) / 2 * 1.0001


# --- a log that grows -------------------------------------------------------------------------


@EVERY_FORMAT
@given(cuts=st.lists(st.integers(0, 3000), max_size=8))
@settings(max_examples=25, deadline=None)
def test_a_growing_log_gives_each_step_once(
    kind: str, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = ("noise\n" + lines(kind, 1, 2) + START[kind] + lines(kind, 3) + "more\n" + lines(kind, 4)).encode()
    path = tmp_path_factory.mktemp("grows") / "log"
    new = follow_log(path, 3, KINDS[kind]())
    assert new() == []  # not there yet
    found: list[Step] = []
    for start, end in pairwise([0, *sorted(min(c, len(text)) for c in cuts), len(text)]):
        with path.open("ab") as log:
            log.write(text[start:end])
        found += new()
        assert new() == []
    expected = [(1, 3), (2, 3), (3, 4), (4, 4)]
    # A bar's last step waits: it may be painted again.
    assert [(s.step, s.attempt) for s in found] == (expected[:-1] if kind == "nemo-bar" else expected)


def test_a_line_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "log"
    new = follow_log(path, 1)
    text = lines("megatron", 1, 2)
    path.write_text(text[:-20])
    assert [s.step for s in new()] == [1]
    path.write_text(text)
    assert [s.step for s in new()] == [2]


def test_a_growing_bars_rank_may_be_written_later_than_its_line_begins(tmp_path: Path) -> None:
    path = tmp_path / "log"
    new = follow_log(path, 1, NemoBarLog())
    found: list[Step] = []
    for number in range(4):
        with path.open("a") as log:
            log.write(lines("nemo-bar", number, label="3: "))
        found += new()
    assert [(s.step, s.rank) for s in found] == [(0, 3), (1, 3), (2, 3)]


def test_what_is_followed_is_what_is_read() -> None:
    path = LOGS / "megatron-bridge-restart.log"
    assert follow_log(path, 1)() == steps(read("megatron", path.read_bytes()))


# --- what must never matter -------------------------------------------------------------------


def nasty(kind: str) -> bytes:
    line = LINE[kind]
    return (
        START[kind] + "0: " + lines(kind, 0) + "noise\r" + lines(kind, 1) + "x" * 9000 + lines(kind, 2) + "\0" * 700
        + line(3) + "\r\n" + line(4)[:-20] + lines(kind, 4) + "y" * LOOKBEHIND + ": " + lines(kind, 5) + "12: "
        + line(6) + "\r" + line(7)[:90] + "z" * (LOOKAHEAD + 10) + "\n" + START[kind] + "12: " + lines(kind, 6)
        + line(8) + " [repeated 3x across cluster]\n\x1b[A" + lines(kind, 9) + line(10)[:130]
    ).encode()  # fmt: skip


@EVERY_FORMAT
@given(chunk_bytes=st.integers(min_value=1, max_value=3 * LOOKAHEAD))
@settings(max_examples=40, deadline=None)
def test_chunk_size_never_matters(kind: str, chunk_bytes: int) -> None:
    assert read(kind, nasty(kind), chunk_bytes) == read(kind, nasty(kind))


@pytest.mark.parametrize("path", [p for p in FORMAT_OF if p.parent == LOGS], ids=lambda path: path.name)
@pytest.mark.parametrize("chunk_bytes", [1, 13, 997, 5000])
def test_chunk_size_never_matters_for_the_logs(path: Path, chunk_bytes: int) -> None:
    data = path.read_bytes()
    if chunk_bytes == 1:
        data = data[:6000]
    assert read(FORMAT_OF[path], data, chunk_bytes) == read(FORMAT_OF[path], data)


@EVERY_FORMAT
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_cut_anywhere_loses_at_most_the_last_step(kind: str, data: st.DataObject) -> None:
    text = nasty(kind)
    if kind == "nemo-bar":  # of several ranks' bars, each has a step that waits
        text = text.replace(b"12: ", b"").replace(b"0: \r", b"\r").replace(b"0: Epoch 0", b"Epoch 0")
    cut = data.draw(st.integers(0, len(text)))
    whole, found = steps(read(kind, text)), steps(read(kind, text[:cut]))
    assert found == whole[: len(found)]


VALUES = st.tuples(st.floats(1e-3, 9e4), st.floats(1e-6, 99))
PREFIXES = ["", "[default0]:", "2026-01-02T03:04:05Z ", "\x1b[36m(Worker pid=9)\x1b[0m "]


@given(st.lists(VALUES, min_size=1, max_size=12), st.sampled_from(PREFIXES), st.sampled_from(["", "\x1b[0m", " "]))
@settings(deadline=None)
def test_a_generated_log_is_read_back(values: list[tuple[float, float]], prefix: str, end: str) -> None:
    def log(kind: str, line: list[str]) -> list[tuple[float | None, float | None]]:
        events = read(kind, "".join(f"{prefix}{one}{end}\n" for one in line))
        assert numbers(events) == list(range(len(values)))
        return [(s.seconds, s.loss) for s in steps(events)]

    pairs = list(enumerate(values))
    printed = [(f"{seconds:.4}", f"{loss:.4}") for seconds, loss in values]
    assert log("nemo", [nemo(n, *printed[n]) for n, _ in pairs]) == [(float(a), float(b)) for a, b in printed]
    printed = [(f"{1000 * seconds:.1f}", f"{loss:.6E}") for seconds, loss in values]
    found = log("megatron", [megatron(n, *printed[n]) for n, _ in pairs])
    assert found == [(round(float(a) / 1000, 9), float(b)) for a, b in printed]
    printed = [(tqdm_number(seconds), tqdm_number(loss)) for seconds, loss in values]
    assert log("nemo-bar", [paint(n + 1, f"{n}.00", *printed[n]) for n, _ in pairs]) == [
        (float(a), float(b)) for a, b in printed
    ]


PIECES = st.sampled_from(
    [b"\n", b"\r", b"\0", b"\x1b[", b"0: ", b"[repeated 9x across cluster]", b"5", b" | ", b", ", b"]",
     *(START[kind].encode() for kind in KINDS), *(LINE[kind](5).encode() for kind in KINDS),
     *(LINE[kind](6).encode()[:60] for kind in KINDS), *(LINE[kind](6).encode()[60:] for kind in KINDS)]
)  # fmt: skip


@EVERY_FORMAT
@given(pieces=st.lists(st.one_of(PIECES, PIECES, st.binary(max_size=20))), chunk_bytes=st.integers(1, 50))
@settings(deadline=None)
def test_garbage_never_raises(kind: str, pieces: list[bytes], chunk_bytes: int) -> None:
    events = read(kind, b"".join(pieces), chunk_bytes)
    assert events == read(kind, b"".join(pieces))
    attempts = [e.attempt for e in events]
    assert attempts == sorted(attempts)


MORE = st.sampled_from(
    [
        "",
        " | consumed_samples: 5",
        " | val_loss: 3.6",
        " | TFLOPS_per_GPU: 4e+02",
        " | lr: 3",
        " | grad_norm: nan",
        " ",
    ]
)
NEMO_VALUES = st.sampled_from(["1.5", "12.64", "4", "0.1021", "1e-05", "nan", "-1", "x", "1.5.5", ".5", "5."])
NEMO_LINES = st.builds(nemo, st.integers(0, 9), NEMO_VALUES, NEMO_VALUES, MORE)
MEGATRON_LINES = st.builds(
    megatron,
    st.integers(0, 9),
    st.sampled_from(["4000.0", "4000.0/4100.2", "4000", "-1.0", "nan", "5.0/"]),
    st.sampled_from(["", "nan", "1.5E+01", "1.192634E+01", "x"]),
    st.integers(0, 1),
    st.integers(0, 1),
)
ENDS = st.sampled_from(["\n", "\n", "\r\n", "\r", "", " \n", " | lr: 1\n", " lm loss: 1 |\n"])
LABELS = st.sampled_from(["", "3: ", "0012: ", "x", "\r", "\x1b[36m"])


@pytest.mark.parametrize("module", [nemo_line_log, megatron_line_log])
@given(
    pieces=st.lists(
        st.one_of(
            st.builds(lambda *parts: "".join(parts).encode(), LABELS, st.one_of(NEMO_LINES, MEGATRON_LINES), ENDS),
            PIECES,
            st.binary(max_size=20),
        )
    )
)
@settings(deadline=None, max_examples=200)
def test_quick_and_careful_paths_agree_on_anything(module: object, pieces: list[bytes]) -> None:
    kind = "nemo" if module is nemo_line_log else "megatron"
    text = b"".join(pieces)
    quick = read(kind, text)
    with mock.patch.object(module, "QUICK_RUN", megatron_line_log.re.compile(rb"(?!)(.)(.)(.)(.)(.)")):
        assert list(map(repr, quick)) == list(map(repr, read(kind, text)))  # as text: nan is not equal to nan


@EVERY_FORMAT
def test_a_usual_line_takes_the_quick_path(kind: str) -> None:
    """Or the speed is gone and no other test says so."""
    if kind == "nemo-bar":
        return
    reader = f"nemo_backend.{'nemo' if kind == 'nemo' else 'megatron'}_line_log._Fields"
    text = "".join(LINE[kind](n) + "\n" for n in range(5))
    with mock.patch(reader, side_effect=AssertionError("read with care")):
        assert numbers(read(kind, text)) == [0, 1, 2, 3, 4]


@EVERY_FORMAT
def test_a_line_of_any_length_is_streamed(kind: str) -> None:
    class Endless(io.RawIOBase):
        """100 MB without a newline, then a step; the bar's is all paints."""

        def __init__(self) -> None:
            part = b"x" * (1 << 20)
            if kind == "nemo-bar":
                part = b"".join(b"\r" + paint(n % 2 + 1, f"{n % 2}.00").encode() for n in range(2)) * 4000
            self.parts: Iterator[bytes] = iter(
                [part] * (100 if kind != "nemo-bar" else 5) + [LINE[kind](9).encode() + b"\n"]
            )

        def read(self, _size: int = -1) -> bytes:
            return next(self.parts, b"")

    tracemalloc.start()
    count = sum(1 for e in KINDS[kind]().read(Endless()) if e.step)  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count >= 1
    assert peak < 12 << 20


def test_the_formats_are_exported_in_their_order() -> None:
    assert [f.name for f in logs.LOG_FORMATS] == ["nemo", "megatron", "nemo-bar"]
