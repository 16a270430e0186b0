"""How often a run that ends by --until=ci:0.5% knows its median, and how many steps it takes; fixed seeds.

400 runs a case, of 50 steps at most, on step times as real runs show them. Where steps take a millisecond, settling,
which is a matter of seconds, plays no part: that is the rule alone. Steps of seconds show it with settling.
`python -m tests.benchmarks.early_stop.test_stopping_simulation` prints the tables of docs/until.md.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks.early_stop import stopping
from benchmarks.measuring.interval import MedianInterval, median_interval
from benchmarks.measuring.settling import SETTLING_LIMIT_SECONDS, Settling
from benchmarks.measuring.window import STEADY, choose_window
from benchmarks.values import Step
from tests.benchmarks.measuring.test_coverage_simulation import CASES as INTERVAL_CASES
from tests.benchmarks.measuring.test_coverage_simulation import (
    RUNS,
    STEPS,
    Array,
    Process,
    autoregressive,
    drift,
    generator,
    independent,
)

UNTIL = stopping.Until(half_width=0.005, at_least=15, steps=STEPS)
TRUTH_STEPS = 100_000
MILLISECOND = 0.001
COMPILE_STEPS = 5.0  # what the first step takes, in steps
Method = Callable[[Sequence[float]], MedianInterval | None]


class Table(NamedTuple):
    """What many runs of a case came to."""

    interval_holds: float  # share of the runs whose 95% interval holds the true median of the steps that it is of
    holds_of_all: float  # the same of the true median of all 50 steps, which with a drift is another
    promise_kept: float  # share whose median is within the target of the true one of all 50 steps
    trained: float  # steps, the first and the announced ones too
    looked: float  # counted steps until the rule was met, or all there were
    reached: float
    settled: float
    saving: float  # of the stepping time of all 50 steps


def cold(step_seconds: float) -> Process:
    """From a cold start: 2% slower, by and by less, as devices warm up; the truth is what it comes to."""

    def draw(random: np.random.RandomState, steps: int) -> Array:
        warm = np.exp(-np.arange(steps) * step_seconds / 20.0)
        return independent(0.002)(random, steps) - 0.02 * warm

    return draw


def run_once(
    random: np.random.RandomState, process: Process, step_seconds: float, method: Method
) -> tuple[int, list[Step]]:
    """The step after which the rule was met (the last where it never was), and the steps that were trained."""
    times = step_seconds * np.concatenate([[COMPILE_STEPS], process(random, STEPS - 1)])
    rule = stopping.StopRule(UNTIL, method, Settling(), SETTLING_LIMIT_SECONDS)
    ends = np.cumsum(times).tolist()
    steps = [
        Step(step=n, seconds=seconds, loss=None, tokens=None, elapsed_seconds=ends[n])
        for n, seconds in enumerate(times.tolist())
    ]
    for step in steps:
        if rule.take(step.step, step.seconds, step.elapsed_seconds):
            return step.step, steps[: step.step + 1 + stopping.LONGEST_LEAD]
    return STEPS, steps


def true_medians(process: Process) -> tuple[Array, float]:
    """The true time of every step, which only a drift makes differ, and the true median of all."""
    if process is drift:
        return 1 + 0.005 * np.linspace(-0.5, 0.5, STEPS - 1), 1.0
    median = float(np.median(process(np.random.RandomState(1), TRUTH_STEPS)))
    return np.full(STEPS - 1, median), median


@cache
def table(case: str, process: Process, step_seconds: float = MILLISECOND, method: Method = median_interval) -> Table:
    """The figures of a run are those of its window, as its result has them."""
    random = generator(f"until {case}")
    each, truth = true_medians(process)
    rows = []
    for _ in range(RUNS):
        decided, steps = run_once(random, process, step_seconds, method)
        window, marked = choose_window(steps, STEADY)
        counted = [step for step in marked if step.excluded_because is None]
        found = method([step.seconds / step_seconds for step in counted if step.seconds])
        assert found is not None
        own = float(np.median(each[[step.step - 1 for step in counted]]))
        rows.append(
            (
                found.low <= own <= found.high,
                found.low <= truth <= found.high,
                abs(found.median / truth - 1) <= UNTIL.half_width,
                len(steps),
                min(decided, STEPS - 1),
                decided < STEPS,
                window.settled,
                1 - (len(steps) - 1 + COMPILE_STEPS) / (STEPS - 1 + COMPILE_STEPS),
            )
        )
    return Table(*(float(mean) for mean in np.mean(rows, axis=0)))


def naive(seconds: Sequence[float]) -> MedianInterval:
    """As if steps were independent: 1.96 standard errors around the median."""
    middle = float(np.median(seconds))
    reach = 1.96 * 1.2533 * float(np.std(seconds, ddof=1)) / math.sqrt(len(seconds))
    return MedianInterval(middle, middle - reach, middle + reach, 0.0, float(len(seconds)))


# --- the rule alone -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", INTERVAL_CASES)
def test_the_interval_of_a_run_that_ends_early_holds_the_true_median(case: str) -> None:
    process, least = INTERVAL_CASES[case]
    assert table(case, process).interval_holds >= least


@pytest.mark.parametrize("case", INTERVAL_CASES)
def test_its_median_is_within_the_target_of_what_all_steps_would_have_given(case: str) -> None:
    assert table(case, INTERVAL_CASES[case][0]).promise_kept >= 0.98


@pytest.mark.parametrize(("case", "most"), [("independent 0.3%", 20), ("independent 0.5%", 25), ("AR 0.3", 31)])
def test_it_looks_at_no_more_steps_than_it_needs(case: str, most: float) -> None:
    assert table(case, INTERVAL_CASES[case][0]).looked <= most


def test_strong_dependence_takes_more_steps_and_reaches_the_target_less_often() -> None:
    weak, strong = table("AR 0.3", autoregressive(0.3)), table("AR 0.8", autoregressive(0.8))
    assert strong.looked > weak.looked + 10
    assert strong.reached < 0.7
    assert weak.reached > 0.97


def test_the_same_rule_with_a_naive_interval_ends_too_soon_and_knows_less_than_it_says() -> None:
    """The negative control: the simulation can tell a bad interval from a good one."""
    assert table("naive", autoregressive(0.6), method=naive).interval_holds < 0.85


def test_the_interval_is_not_of_a_drift_to_come_and_the_documentation_says_how_often() -> None:
    holds = table("drift", drift).holds_of_all
    assert holds < 0.95
    assert f"it holds in {holds:.1%} of the runs" in DOCUMENT.read_text(encoding="utf-8")


# --- with settling --------------------------------------------------------------------------------

SECONDS = (1.0, 2.5, 5.0, 10.0, 20.0)


@pytest.mark.parametrize("seconds", [5.0, 10.0, 20.0])
def test_a_cold_machine_has_settled_when_such_a_run_ends(seconds: float) -> None:
    found = table(f"cold {seconds}", cold(seconds), seconds)
    assert found.settled == 1.0
    assert min(found.interval_holds, found.promise_kept) >= 0.97
    assert found.saving > 0.2


@pytest.mark.parametrize("seconds", [5.0, 10.0, 20.0])
def test_it_saves_a_third_of_the_steps_where_steps_take_seconds(seconds: float) -> None:
    assert table(f"independent {seconds}", independent(0.003), seconds).saving > 0.33


def test_a_run_too_short_to_settle_does_not_claim_to_have_settled() -> None:
    """50 steps of a second end before step times can be seen to settle; nor would all 50 have shown it."""
    found = table("cold 1.0", cold(1.0), 1.0)
    assert found.settled == 0.0
    assert found.reached < 0.05


# --- the tables -----------------------------------------------------------------------------------

COLUMNS = ("met after", "reached", "steps run", "saved", "settled", "interval holds", "within 0.5%")


def line(case: str, found: Table) -> str:
    cells = [
        f"{found.looked:.1f}",
        f"{found.reached:.1%}",
        f"{found.trained:.1f}",
        *(f"{share:.1%}" for share in (found.saving, found.settled, found.interval_holds, found.promise_kept)),
    ]
    return f"| {case} | {' | '.join(cells)} |"


DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "until.md"


@pytest.mark.parametrize("case", INTERVAL_CASES)
def test_the_documented_table_is_what_the_simulation_gives(case: str) -> None:
    assert line(case, table(case, INTERVAL_CASES[case][0])) in DOCUMENT.read_text(encoding="utf-8").splitlines()


def main() -> None:
    heading = f"| case | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}"
    print(f"The rule alone (steps of a millisecond)\n\n{heading}")
    for case, (process, _) in INTERVAL_CASES.items():
        print(line(case, table(case, process)))
    print(line("naive interval, AR 0.6", table("naive", autoregressive(0.6), method=naive)))
    print(f"\nWith settling\n\n{heading}")
    for seconds in SECONDS:
        print(line(f"{seconds:g} s a step, 0.3%", table(f"independent {seconds}", independent(0.003), seconds)))
        print(line(f"{seconds:g} s a step, AR 0.3", table(f"AR {seconds}", autoregressive(0.3), seconds)))
        print(line(f"{seconds:g} s a step, cold start", table(f"cold {seconds}", cold(seconds), seconds)))


if __name__ == "__main__":
    main()
