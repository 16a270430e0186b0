"""Two sides compared: every metric and its verdict, the refusals and the notes."""

from typing import Any

import msgspec
import pytest

from benchmarks.compare.compare import compare
from benchmarks.measuring.summary import Pgle
from benchmarks.values import PgleSeen
from benchmarks.verdict import Verdict
from tests.benchmarks.compare.made import (
    REAL_RUN,
    entry,
    figure,
    mfu,
    paired_runs,
    run,
    side,
    sides,
)

SPEEDS = ("seconds/step", "tokens/s", "effective tokens/s")
FAST, SLOW = (1.0, 1.001, 0.999), (1.05, 1.051, 1.049)


# --- metrics and verdicts -------------------------------------------------------------------------


def test_a_slower_set_is_worse_in_step_time_and_other_metrics_have_their_interval_only() -> None:
    found = compare(*sides(FAST, SLOW))
    seconds = figure(found, "seconds/step")
    assert (found.verdict, seconds.verdict) == (Verdict.WORSE, Verdict.WORSE)
    assert (seconds.low, seconds.percent, seconds.high) == pytest.approx((4.77, 5.0, 5.23), abs=0.1)
    assert {one.verdict for one in found.differences if one is not seconds} == {Verdict.NOT_TESTED}
    for name in SPEEDS[1:]:
        assert figure(found, name).percent == pytest.approx(100 / 1.05 - 100, abs=0.01)
        assert (figure(found, name).high or 0) < 0
    assert seconds.a == pytest.approx(1.0)
    assert compare(*reversed(sides(FAST, SLOW))).verdict == Verdict.BETTER


def test_sets_within_the_margin_are_the_same_and_the_margin_is_the_users() -> None:
    close = sides(FAST, (1.003, 1.0031, 1.0029))
    assert compare(*close).verdict == Verdict.SAME
    assert compare(*close, margin_percent=0.1).verdict == Verdict.WORSE
    assert compare(*sides([1.0] * 3, [1.003] * 3), margin_percent=0).verdict == Verdict.WORSE


def test_pairs_of_one_sweep_are_compared_run_against_run() -> None:
    machine = (1.0, 1.3, 0.8, 1.1)
    a = side("A", *paired_runs("a", 0, machine))
    b = side("B", *paired_runs("b", 1, [1.02 * one for one in machine]))
    one = figure(compare(a, b), "seconds/step")
    assert (one.verdict, one.percent) == (Verdict.WORSE, pytest.approx(2.0))
    assert "4 pairs of one sweep" in one.why
    unpaired = side("B", *(r._replace(pair=None) for r in b.runs))
    assert compare(a, unpaired).verdict == Verdict.INCONCLUSIVE
    other_sweep = side("B", *(r._replace(pair=r.pair._replace(sweep="sweep-2")) for r in b.runs if r.pair))
    assert compare(a, other_sweep).verdict == Verdict.INCONCLUSIVE


def test_a_metric_that_one_run_lacks_is_no_metric_of_its_set() -> None:
    a, b = sides(FAST, SLOW)
    without = run("b3", 1.05, result={"tokens_per_second_effective": None})
    b = side("B", *b.runs[:2], without._replace(result=msgspec.structs.replace(without.result, telemetry=None)))
    memory = figure(compare(a, b), "host memory")
    assert memory.why.startswith("not known for b3")
    assert (memory.percent, memory.moved) == (None, False)


@pytest.mark.parametrize(("loss", "moved"), [(1.005, False), (1.02, True), (0.98, True)])
def test_loss_and_memory_are_flagged_if_they_move_by_more_than_the_margin(loss: float, moved: bool) -> None:
    known = REAL_RUN.result
    assert known.telemetry is not None
    held = int((known.telemetry.host_memory_bytes_max or 1) * loss)
    changed = {
        "loss": msgspec.structs.replace(known.loss, last=(known.loss.last or 1.0) * loss),
        "telemetry": msgspec.structs.replace(known.telemetry, host_memory_bytes_max=held),
    }
    found = compare(*sides(FAST, FAST, result=changed))
    assert [one.name for one in found.differences if one.moved] == (["last loss", "host memory"] if moved else [])
    assert found.verdict == Verdict.SAME


def test_a_step_time_that_still_moves_widens_the_interval() -> None:
    moving = msgspec.structs.replace(
        REAL_RUN.result.window,
        settling="still moving",
        settled=False,
        median_off_percent=10.0,
        drift_percent_per_minute=-1.0,
    )
    found = compare(*sides(FAST, SLOW, result={"window": moving}))
    assert found.verdict == Verdict.INCONCLUSIVE
    assert "not settled" in [one.kind for one in found.warnings]
    a, b = sides(FAST, SLOW, result={"window": moving})
    a = side("A", *(r._replace(result=msgspec.structs.replace(r.result, window=moving)) for r in a.runs))
    assert compare(a, b).verdict == Verdict.WORSE  # what both have in common cancels


# --- single runs ----------------------------------------------------------------------------------


def test_two_single_runs_without_earlier_ones_are_inconclusive() -> None:
    one = figure(compare(*sides([1.0], [2.0])), "seconds/step")
    assert (one.verdict, one.percent) == (Verdict.INCONCLUSIVE, pytest.approx(100.0))
    assert (one.low, one.high) == (None, None)
    assert "noise between equal runs" in one.why


def test_three_earlier_runs_of_the_same_kind_give_single_runs_their_verdict() -> None:
    a, b = sides([1.0], [1.2])
    a, b = (side(s.label, *(r._replace(result=_narrow(r.result)) for r in s.runs)) for s in (a, b))
    earlier = [entry(f"e{n}", 1.0 + 0.001 * n) for n in range(3)]
    named = [entry("a0", 1.0), entry("b0", 1.2)]
    one = figure(compare(a, b, history=lambda: [*earlier, *named]), "seconds/step")
    assert one.verdict == Verdict.WORSE
    assert "noise of 3 other runs" in one.why
    few = compare(a, b, history=lambda: [*earlier[:2], *named])
    assert few.verdict == Verdict.INCONCLUSIVE
    near = compare(a, a._replace(runs=sides([1.0], [1.002])[1].runs), history=lambda: [*earlier, *named])
    assert near.verdict == Verdict.INCONCLUSIVE


def _narrow(result: Any) -> Any:
    median = result.seconds_per_step.median
    spread = msgspec.structs.replace(result.seconds_per_step, ci95=[median * 0.9999, median * 1.0001])
    return msgspec.structs.replace(result, seconds_per_step=spread)


@pytest.mark.parametrize(
    "changes",
    [
        {"identity": {"benchmark": "another"}},
        {"status": "invalid"},
        {"slowed_by": 0.5},
        {"not_comparable": ["profiled"]},
        {"seconds_per_step": None},
    ],
)
def test_runs_of_another_kind_give_no_noise(changes: dict[str, Any]) -> None:
    earlier = [entry(f"e{n}", 1.0 + 0.001 * n, **changes) for n in range(9)]
    named = [entry("a0", 1.0), entry("b0", 1.2)]
    assert compare(*sides([1.0], [1.2]), history=lambda: [*earlier, *named]).verdict == Verdict.INCONCLUSIVE


# --- what may not be compared ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"result": {"not_comparable": ["profiled (--profile=nsys): recording changes"]}}, "profiled"),
        ({"result": {"status": "failed", "reasons": ["rank 0 died"]}}, "failed: rank 0 died"),
        (
            {"result": {"status": "failed", "reasons": [f"rank {n} died" for n in range(64)]}},
            "each of 64 ranks (0-63)",
        ),
        ({"result": {"status": "invalid", "reasons": ["two meshes"]}}, "invalid: two meshes"),
        ({"benchmark": {"dtype": "fp8"}}, "fp8 is emulated"),
    ],
)
def test_runs_that_prove_no_speed_are_left_out_and_a_side_without_runs_is_refused(
    changes: dict[str, Any], why: str
) -> None:
    bad = run("bad", 1.0, **changes)
    a, b = sides(FAST, SLOW)
    found = compare(side("A", *a.runs, bad), b)
    assert found.refused == []
    assert why in found.a.left_out["bad"]
    assert found.verdict == Verdict.WORSE
    for refused in (compare(side("A", bad), b), compare(a, side("B", bad))):
        assert len(refused.refused) == 1
        assert why in refused.refused[0]
        assert refused.differences == []


def test_a_slowed_run_is_refused_as_baseline_and_noted_as_candidate() -> None:
    slowed = {"result": {"slowed_by": 0.5}, "benchmark": {"inject_slowdown": 0.5}}
    a, b = sides(FAST, SLOW, **slowed)
    found = compare(a, b)
    assert found.refused == []
    assert "slowed by 50%" in found.summary
    refused = compare(b, a)
    assert "cannot be a baseline" in refused.refused[0]


def test_another_window_is_refused() -> None:
    window = msgspec.structs.replace(REAL_RUN.result.window, rule="35-44")
    found = compare(*sides(FAST, SLOW, benchmark={"window": "35-44"}, result={"window": window}))
    assert "(--window=steady and --window=35-44)" in found.refused[0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"dtype": "fp32"}, "dtype bf16 (3 runs), fp32 (1 run)"), ({"gpus": 2}, "gpus 1 (3 runs), 2 (1 run)")],
)
def test_a_mixture_is_refused(changes: dict[str, Any], text: str) -> None:
    a, b = sides(FAST, SLOW)
    found = compare(side("A", *a.runs, run("other", 1.0, benchmark=changes)), b)
    assert found.refused == [f"the runs of A differ: {text}"]


TINY = REAL_RUN.benchmark.model


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sequence_length": 256}, "sequence length (128 and 256)"),
        ({"task": "lora"}, "task (pretrain and lora)"),
        ({"model": msgspec.structs.replace(TINY, name="big")}, "model (llama2_tiny and big)"),
        ({"model": msgspec.structs.replace(TINY, layers=4)}, "dimensions of the model (layers 2 and 4)"),
    ],
)
def test_other_work_for_a_token_is_refused_where_no_figure_of_speed_is_left(
    changes: dict[str, Any], text: str
) -> None:
    refused = compare(*sides(FAST, SLOW, benchmark=changes)).refused
    assert len(refused) == 1  # though it is of several figures
    assert text in refused[0]


def test_models_have_an_mfu_in_common() -> None:
    a, b = sides(FAST, SLOW, benchmark={"sequence_length": 256})
    a, b = (
        side(s.label, *(r._replace(result=msgspec.structs.replace(r.result, mfu=[mfu(percent)])) for r in s.runs))
        for s, percent in ((a, 40.0), (b, 50.0))
    )
    found = compare(a, b)
    assert (figure(found, "MFU").verdict, figure(found, "MFU").percent) == (Verdict.BETTER, pytest.approx(25.0))
    assert "sequence length" in figure(found, "tokens/s").why
    assert figure(found, "tokens/s").percent is None
    assert figure(found, "host memory").percent is None


def test_a_metric_that_only_some_runs_have_is_named_with_the_others() -> None:
    others = (run(f"a{number}", seconds) for number, seconds in enumerate(FAST[1:]))
    a = side("A", run("with", FAST[0], result={"mfu": [mfu(41.0)]}), *others)
    found = figure(compare(a, side("B", *(run(f"b{n}", seconds) for n, seconds in enumerate(SLOW)))), "MFU")
    assert (found.a, found.b) == (None, None)
    assert found.why.startswith("not known for a0") and "with" not in found.why


def test_another_batch_takes_the_seconds_and_leaves_the_tokens() -> None:
    found = compare(*sides(FAST, SLOW, benchmark={"global_batch_size": 4}))
    assert "compare tokens/s instead" in figure(found, "seconds/step").why
    assert figure(found, "seconds/step").percent is None
    assert figure(found, "tokens/s").verdict == found.verdict == Verdict.WORSE
    assert figure(found, "last loss").percent is None
    assert "global batch size: 2 -> 4" in found.asked


@pytest.mark.parametrize(
    "other", [mfu(40.0, convention="published"), mfu(40.0, precision="fp8"), mfu(40.0, peak=2250.0)]
)
def test_an_mfu_of_another_convention_precision_or_peak_is_refused_alone(other: Any) -> None:
    a, b = sides(FAST, SLOW, result={"mfu": [other]})
    a = side("A", *(run(f"a{n}", one, result={"mfu": [mfu(41.0)]}) for n, one in enumerate(FAST)))
    found = compare(a, b)
    assert figure(found, "MFU").percent is None
    assert "no common FLOP convention and peak (A: dense, 989 TFLOP/s bf16" in figure(found, "MFU").why
    assert found.verdict == Verdict.WORSE


def pgle(way: str, applied: bool) -> Any:
    seen = PgleSeen(applied=applied, reason="every trace was empty")
    return {"benchmark": {"pgle": way}, "result": {"pgle": Pgle(way=way, seen=seen)}}


def test_a_profile_that_was_not_applied_can_gain_nothing() -> None:
    found = compare(*sides(FAST, SLOW, **pgle("auto", applied=False)))
    assert "every trace was empty" in found.refused[0]
    assert compare(*sides(FAST, SLOW, **pgle("auto", applied=True))).refused == []


# --- warnings -------------------------------------------------------------------------------------


def at(minute: int) -> str:
    return f"20261122T06{minute:02}00Z-jax-llama2_tiny-pretrain-bf16-1xcpu-00{minute:02}"


def warned(order: str) -> list[str]:
    """Return the kind of each warning for runs in this order, such as ABBA."""
    runs = [(letter, run(at(minute), 1.0 + 0.001 * minute)) for minute, letter in enumerate(order)]
    found = compare(*(side(name, *(one for letter, one in runs if letter == name)) for name in "AB"))
    return [one.kind for one in found.warnings]


@pytest.mark.parametrize("order", ["ABABAB", "ABBAAB", "ABBAABBA", "AABAABAAB"])
def test_sides_in_turns_have_no_warning(order: str) -> None:
    assert "not interleaved" not in warned(order)


@pytest.mark.parametrize("order", ["AAABBB", "BBBAAA", "AAABBBBBBAAA", "AABBBBAA"])
def test_sides_that_were_not_run_in_turns_have_a_warning(order: str) -> None:
    assert "not interleaved" in warned(order)


def test_the_warning_has_the_command_that_runs_both_in_turns() -> None:
    runs = [
        [run(at(3 * side + n), 1.0, benchmark={"dtype": dtype}) for n in range(3)]
        for side, dtype in enumerate(("bf16", "fp32"))
    ]
    (warning,) = (
        one for one in compare(side("A", *runs[0]), side("B", *runs[1])).warnings if one.kind == "not interleaved"
    )
    flags = "--backend=jax --model=llama2_tiny --dtype=bf16,fp32 --steps=60"
    assert warning.next_command == f"python launch/run.py {flags} --repeats=3"


def test_the_command_for_two_frameworks_keeps_the_precision_and_leaves_the_engines_to_them() -> None:
    other = run("b", 1.0, benchmark={"backend": "nemo", "engine": "nemo"})
    (warning, *_) = compare(side("A", run("a", 1.0)), side("B", other)).warnings
    flags = f"--backend=jax,nemo --model=llama2_tiny --dtype={REAL_RUN.benchmark.dtype}"
    assert warning.next_command == f"python launch/run.py {flags} --steps=60 --repeats=3"


def test_an_unknown_order_and_few_runs_are_warned_of() -> None:
    a, b = sides(FAST, SLOW)
    unknown = side("B", *(r._replace(began=None) for r in b.runs))
    assert "not interleaved" in [one.kind for one in compare(a, unknown).warnings]
    kinds = [one.kind for one in compare(*sides(FAST[:1], SLOW[:2])).warnings]
    assert "few runs" in kinds
