"""Texts for users: values with their units, and a plain word for an unknown value."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.measuring import result_text
from benchmarks.measuring.summary import Result
from benchmarks.measuring.utilisation import Mfu
from benchmarks.model.plan_text import plan_text, recompute_rows
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.recompute import recompute
from benchmarks.runs.runfolder import RunFolder
from benchmarks.text import (
    aligned,
    bytes_text,
    columns,
    count_text,
    duration_text,
    reasons_text,
    seconds_text,
    step_text,
)
from benchmarks.values import Benchmark, Recompute, Step
from jax_backend import BACKEND


def resolved(model: str, settings: dict[str, str] | None = None, **wanted: Any) -> Benchmark:
    return resolve(Request(backend="jax", model=model, settings=settings or {}, **wanted), Configs(), BACKEND)


def plan_of(benchmark: Benchmark) -> str:
    return plan_text(benchmark, BACKEND.plan(benchmark), BACKEND.storage(benchmark))


# --- numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "number", "text"),
    [
        (seconds_text, 123.456, "123.5 s"),
        (seconds_text, 0.015214, "15.21 ms"),
        (seconds_text, 0.000015, "15 us"),
        (duration_text, 59.4, "59 s"),
        (duration_text, 59.6, "1 min 00 s"),
        (duration_text, 3599.7, "1 h 00 min"),
        (duration_text, 7260, "2 h 01 min"),
        (bytes_text, 1.5e12, "1.50 TB"),
        (bytes_text, 80e9, "80.00 GB"),
        (bytes_text, 512.0, "0.5 kB"),
        (count_text, 74908.987, "74,909"),
        (count_text, 0.01234, "0.0123"),
    ],
)
def test_numbers(made: Callable[[float], str], number: float, text: str) -> None:
    assert made(number) == text


@pytest.mark.parametrize(
    ("reasons", "text"),
    [
        ([f"rank {rank}: no step" for rank in range(64)], "64 ranks (0-63): no step"),
        (
            ["rank 1 was killed by signal 6", "rank 3 was killed by signal 6", "rank 2 failed (x)"],
            "each of 2 ranks (1,3) was killed by signal 6; rank 2 failed (x)",
        ),
        (["phase convert: rank 0 failed (x)", "phase convert: rank 1 failed (x)"],
         "phase convert: each of 2 ranks (0-1) failed (x)"),
        (["rank 0 failed (E: 1 error\n  field)", r"rank 1 failed (E: 1 error\n  field)"],
         "each of 2 ranks (0-1) failed (E: 1 error field)"),
        ([f"rank {rank}: loss {rank}" for rank in range(64)],
         "rank 0: loss 0; rank 1: loss 1; rank 2: loss 2; rank 3: loss 3 and 60 more"),
        (["rank 7: alone", "7 of 9 steps were trained"], "rank 7: alone; 7 of 9 steps were trained"),
        ([], ""),
    ],
)  # fmt: skip
def test_equal_reasons_of_ranks_become_one_line(reasons: list[str], text: str) -> None:
    assert reasons_text(reasons) == text


def test_columns_line_up_and_long_texts_stay_in_theirs() -> None:
    lines = aligned([("a", "one\ntwo"), ("long", "three")])
    assert lines == ["  a     one", "        two", "  long  three"]
    assert columns([("a", "7", ""), ("long", "1234", "why")], numbers=[1]) == ["  a        7", "  long  1234  why"]


# --- the live line ------------------------------------------------------------------------------------


def test_the_live_line() -> None:
    step = Step(step=4, seconds=0.5, loss=5.25, tokens=256)
    assert step_text(step, 50, 0.5, 22.4) == ("step 5/50 · 22 s left · 500 ms/step · 512 tokens/s · loss 5.250")


def test_the_live_line_knows_little_at_first() -> None:
    step = Step(step=0, seconds=None, loss=None, tokens=None)
    assert step_text(step, 50, None, None) == "step 1/50"


# --- a result -----------------------------------------------------------------------------------------


def table(result: Result) -> str:
    return "\n".join(aligned(result_text.result_rows(result)))


def test_a_result_for_people(whole_run: RunFolder) -> None:
    text = table(whole_run.stored_result())
    assert "valid" in text.splitlines()[0]
    assert "252 ms median, 95% interval 249.8 ms to 254.2 ms" in text
    assert "at the median; " in text
    assert "tokens/s" in text
    assert "effective (mean step vs. median " in text
    assert "unknown: no bf16 peak is published for cpu" in text
    assert "6.0000 -> 4.9000" in text
    assert "11 counted (steady: steps 1-11, too short to confirm); excluded: 1 compile" in text
    assert "None" not in text


def test_a_failed_result_claims_no_speed(empty_run: RunFolder, add_attempt: Callable[..., Path]) -> None:
    add_attempt(empty_run, exit_code=-9, steps=4, end=None)
    text = table(recompute(empty_run, BACKEND)[0])
    assert "failed\n" in text
    assert "- rank 0 was killed by signal 9 after step 3" in text
    assert "not reported: the run failed" in text
    assert "tokens/s" not in text
    assert "MFU" not in text


def test_few_steps_have_no_interval_and_say_so(empty_run: RunFolder, add_attempt: Callable[..., Path]) -> None:
    add_attempt(empty_run, steps=2)
    benchmark = msgspec.structs.replace(empty_run.benchmark(), steps=2)
    empty_run.write("benchmark.json", benchmark)
    assert "an interval needs at least 9 counted steps, and there are 1" in table(recompute(empty_run, BACKEND)[0])


def entry(convention: str, tflops: float, percent: float, precision: str = "bf16") -> Mfu:
    return Mfu(
        convention=convention, precision_peak=precision, peak_tflops=tflops, peak_source="a sheet", percent=percent
    )


def test_conventions_stand_side_by_side_and_peaks_below_one_another(whole_run: RunFolder) -> None:
    entries = [
        entry("recipe", 1979, 42.55, "fp8"),
        entry("causal", 1979, 41.01, "fp8"),
        entry("recipe", 1839.07, 45.79, "mixed"),
        entry("causal", 1842.5, 44.1, "mixed"),
        entry("recipe, achievable", 1402.6, 60.04, "fp8"),
        entry("causal, achievable", 1402.6, 57.86, "fp8"),
    ]
    changed = msgspec.structs.replace(whole_run.stored_result(), mfu=entries, hfu=[entry("recipe", 989, 61.5)])
    lines = [line.strip() for line in table(changed).splitlines()]
    start = next(n for n, line in enumerate(lines) if line.startswith("MFU"))
    assert lines[start : start + 6] == [
        "MFU           recipe  causal  of a device's TFLOP/s",
        "42.55%  41.01%  1979 fp8 (datasheet)",
        "45.79%  44.10%  1839.1 to 1842.5 mixed (datasheet)",
        "60.04%  57.86%  1402.6 fp8 (achievable)",
        "HFU           recipe  of a device's TFLOP/s",
        "61.50%  989 bf16 (datasheet)",
    ]


# --- a plan -------------------------------------------------------------------------------------------


def row(text: str, label: str) -> str:
    (found,) = [line.strip() for line in text.splitlines() if line.split()[:1] == [label]]
    return found


def test_the_plan_shows_what_is_computed_twice_by_part_and_in_sum() -> None:
    text = plan_of(resolved("llama2_70b", dtype="bf16", hardware="h100", gpus=64))
    again = "3.5184e+14 per sequence: 4.398e+13 attention core, 3.0786e+14 gate and up"
    assert row(text, "recomputed").endswith(again)
    assert "hardware    2.1725e+15 per sequence for HFU (recipe +19.3%)" in text


def test_the_plan_says_where_nothing_is_computed_twice_and_where_it_is_not_known() -> None:
    benchmark = resolved("llama2_70b", dtype="bf16", hardware="h100", gpus=64)
    assert recompute_rows(benchmark, Recompute()) == [("recomputed", "nothing: HFU equals MFU")]
    assert "does not report" in recompute_rows(benchmark, None)[0][1]
    some = Recompute(matmuls=frozenset({"mlpwo"}), layers=4)
    assert "(4 of 80 layers)" in recompute_rows(benchmark, some)[0][1]


def test_words_are_quoted_for_a_shell_and_placeholders_stay_readable() -> None:
    text = plan_of(resolved("llama2_tiny", hardware="h100"))
    assert "    '--device_name=NVIDIA H100 80GB HBM3' \\" in text
    worker = "{repository}/jax_backend/inside/worker.py"
    assert f"    {{python}} \\\n    -P \\\n    {worker} \\\n    --events_dir={{phase_dir}} \\\n" in text


@pytest.mark.parametrize("share", ["much", "", "0", "1.5", "nan"])
def test_a_share_of_memory_that_is_none_is_refused(share: str) -> None:
    benchmark = resolved("llama2_70b", {"env.XLA_PYTHON_CLIENT_MEM_FRACTION": share})
    with pytest.raises(RequestError, match="a number above 0 and up to 1"):
        plan_of(benchmark)
