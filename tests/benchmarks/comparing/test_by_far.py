"""Differences that are named without statistics, and drifts that have not ended."""

import math
from typing import Any

import msgspec
import pytest

from benchmarks.comparing import by_far
from benchmarks.comparing.compare import compare
from benchmarks.comparing.runs import ComparedRun
from benchmarks.comparing.values import Comparison
from tests.benchmarks.comparing.made import entry, figure, on_gpu, run, side
from tests.public_runs.histories import read_sets


def test_the_bound_is_that_of_the_public_runs() -> None:
    most = 100 * math.expm1(max(max(one.logs) - min(one.logs) for one in read_sets()))
    assert most == pytest.approx(by_far.MOST_APART_PERCENT, abs=0.01)


def single(name: str, seconds: float, of_window: float = 0.0001, cpu: bool = False, **of_result: Any) -> ComparedRun:
    made = run(name, seconds) if cpu else on_gpu(name, seconds)
    median = made.result.seconds_per_step.median or 0.0
    ends = [median * (1 - of_window), median * (1 + of_window)]
    spread = msgspec.structs.replace(made.result.seconds_per_step, ci95=ends)
    return made._replace(result=msgspec.structs.replace(made.result, seconds_per_step=spread, **of_result))


def verdict(found: Comparison) -> str:
    return figure(found, "seconds/step").verdict


def test_half_the_time_is_called_so_with_one_run_each() -> None:
    found = compare(side("A", single("a", 2.0)), side("B", single("b", 1.0)))
    names = ("seconds/step", "tokens/s", "effective tokens/s")
    assert {figure(found, name).verdict for name in names} == {"better"}
    assert found.summary == (
        "b takes 50% as long as a for MaxText llama2_tiny on 1 H100: 1 against 2 s/step; one run each"
    )
    assert "one run each; more than 10 times the largest difference" in figure(found, "tokens/s").why
    assert figure(found, "GPU memory").verdict == "no verdict"
    assert verdict(compare(side("A", single("a", 1.0)), side("B", single("b", 2.0)))) == "worse"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (single("a", 1.0), single("b", 1.5)),
        (single("a", 1.0, cpu=True), single("b", 9.0, cpu=True)),  # whatever runs beside has a share of a CPU
        (single("a", 1.0, of_window=0.1), single("b", 2.0)),  # ten times what its own window leaves open
    ],
)
def test_less_than_that_has_no_verdict(a: ComparedRun, b: ComparedRun) -> None:
    assert verdict(compare(side("A", a), side("B", b))) == "no verdict"


def test_runs_of_the_site_that_differed_more_raise_the_bound() -> None:
    a, b = side("A", single("a", 1.0)), side("B", single("b", 2.0))
    named = [entry("a", 1.0), entry("b", 2.0)]
    calm, wild = ([entry("e0", 1.0), entry("e1", last)] for last in (1.05, 1.2))
    assert verdict(compare(a, b, history=lambda: [*named, *calm])) == "worse"
    assert verdict(compare(a, b, history=lambda: [*named, *wild])) == "no verdict"


# --- drifts ---------------------------------------------------------------------------------------


def moving(letter: str, seconds: float, pace: float, off: float) -> list[ComparedRun]:
    """Three runs that all still move."""
    window = msgspec.structs.replace(
        run("x").result.window,
        settling="still moving" if off else "settled",
        settled=not off,
        drift_percent_per_minute=pace or None,
        median_off_percent=off or None,
    )
    return [run(f"{letter}{n}", seconds * (1 + 0.001 * n), result={"window": window}) for n in range(3)]


def test_an_interval_has_room_for_what_only_one_side_may_still_move() -> None:
    plain = compare(side("A", *moving("a", 1.0, 0.0, 0.0)), side("B", *moving("b", 1.02, 0.0, 0.0)))
    faster = compare(side("A", *moving("a", 1.0, 0.0, 0.0)), side("B", *moving("b", 1.02, -0.5, 3.0)))
    slower = compare(side("A", *moving("a", 1.0, 0.0, 0.0)), side("B", *moving("b", 1.02, 0.5, 3.0)))
    alike = compare(side("A", *moving("a", 1.0, -0.5, 3.0)), side("B", *moving("b", 1.02, -0.5, 3.0)))
    opposed = compare(side("A", *moving("a", 1.0, 0.5, 3.0)), side("B", *moving("b", 1.02, -0.5, 3.0)))
    assert [verdict(one) for one in (plain, faster, slower, alike, opposed)] == [
        "worse", "no difference shown", "worse", "worse", "no difference shown",
    ]  # fmt: skip
    ends = [figure(one, "seconds/step") for one in (plain, faster, slower)]
    assert ends[0].low is not None
    assert ends[1].low is not None
    assert math.log1p(ends[0].low / 100) - math.log1p(ends[1].low / 100) == pytest.approx(math.log(1.03))
    assert (ends[0].high or 0) < (ends[2].high or 0)
    assert ends[2].low == ends[0].low
    assert "the interval has room for 3% of drift" in ends[1].why
    assert figure(faster, "tokens/s").verdict == "no difference shown"
    assert any(note.startswith("still moving: 0 of 3 runs of A, 3 of 3 of B") for note in faster.notes)
