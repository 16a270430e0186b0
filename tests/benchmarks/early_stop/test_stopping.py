"""The rule that ends a run early, and how ranks agree on the last step. Pure; no framework and no clock."""

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.early_stop import stopping
from benchmarks.measuring.interval import median_interval
from benchmarks.measuring.settling import SETTLING_LIMIT_SECONDS, Settling
from benchmarks.measuring.window import STEADY, choose_window
from benchmarks.values import Step

ASKED = stopping.Until(half_width=0.005, at_least=15, steps=50)
SOONEST = 17  # 15 counted steps after the one that compiles, and two more looks


def rule(until: stopping.Until = ASKED) -> stopping.StopRule:
    return stopping.StopRule(until, median_interval, Settling(), SETTLING_LIMIT_SECONDS)


def steps_of(seconds: list[float], excluded: dict[int, str] | None = None) -> list[Step]:
    ends = [math.fsum(seconds[: place + 1]) for place in range(len(seconds))]
    return [
        Step(
            step=n,
            seconds=one,
            loss=None,
            tokens=None,
            elapsed_seconds=ends[n],
            excluded_because=(excluded or {}).get(n),
        )
        for n, one in enumerate(seconds)
    ]


def decided(steps: list[Step], until: stopping.Until = ASKED) -> tuple[int | None, str]:
    found = rule(until)
    for step in steps:
        found.take(step.step, step.seconds, step.elapsed_seconds, step.excluded_because)
    return found.decided, found.missing


def noisy(count: int, noise: float = 0.001, seconds: float = 0.01, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [5 * seconds, *(seconds * draw.gauss(1, noise) for _ in range(count - 1))]


# --- the rule -------------------------------------------------------------------------------------


def test_a_quiet_run_ends_as_soon_as_enough_steps_were_looked_at() -> None:
    assert decided(steps_of(noisy(50))) == (SOONEST, "")


def test_three_looks_in_a_row_are_needed() -> None:
    """The last of them alone is not enough, and one that fails begins the count anew."""
    seconds = noisy(50)
    assert decided(steps_of(seconds[:SOONEST])) == (None, "2 of 3 looks in a row")
    assert decided(steps_of(seconds[: SOONEST - 1])) == (None, "1 of 3 looks in a row")
    found = rule()
    fails_at = SOONEST - 1
    answers = iter(range(100))

    def interval(values: Any) -> Any:
        usual = median_interval(values)
        assert usual is not None
        return usual if next(answers) != 1 else usual._replace(high=2 * usual.median)

    found._median_interval = interval
    for step in steps_of(seconds):
        found.take(step.step, step.seconds, step.elapsed_seconds)
    assert found.decided == fails_at + 3


def test_a_loud_run_does_not_end() -> None:
    reached, why = decided(steps_of(noisy(50, noise=0.03)))
    assert reached is None
    assert why.startswith("the median is known to +-")


def test_the_longer_side_of_the_interval_counts() -> None:
    assert stopping.half_width(1.0, 0.999, 1.008) == pytest.approx(0.008)
    assert stopping.half_width(2.0, 1.98, 2.001) == pytest.approx(0.01)


def test_halves_that_differ_keep_a_run_going() -> None:
    """A steep drift with little noise: the interval may be narrow, and is not to be believed."""
    assert stopping.halves_apart([1.0] * 8 + [2.0] * 8) == 1.0
    assert stopping.halves_apart([1.0, 9.0, 1.0]) == 0.0
    jumping = [0.05, *([0.01] * 8 + [0.0103] * 8)]
    found = rule(ASKED._replace(half_width=0.02))
    found._median_interval = lambda values: median_interval([0.01] * len(values))  # one that sees no jump
    for step in steps_of(jumping):
        found.take(step.step, step.seconds, step.elapsed_seconds)
    assert found.missing == "the medians of the first and the second half of the steps are 3.00% apart"


def test_compile_and_disturbed_steps_are_not_looked_at() -> None:
    """They are wild, and would keep the interval wide; each that is left out makes the run one step longer."""
    seconds = noisy(50)
    excluded = {3: "pgle", 4: "pgle", 5: "pgle"}
    for step in excluded:
        seconds[step] *= 3
    assert decided(steps_of(seconds, excluded)) == (SOONEST + 3, "")


def test_a_step_without_a_time_does_not_count() -> None:
    steps = steps_of(noisy(50))
    found = rule()
    for step in steps:
        found.take(step.step, None if step.step == 7 else step.seconds, step.elapsed_seconds)
    assert found.decided == SOONEST + 1


def test_settled_steps_alone_count_once_there_are_any() -> None:
    """Steps of 5 s settle after 6 counted ones at the soonest; 15 more must count then."""
    reached, _ = decided(steps_of(noisy(50, noise=0.0001, seconds=5.1)))
    assert reached == 6 + SOONEST


def test_a_run_that_will_settle_is_waited_for() -> None:
    """Every bin of 15 s differs by more than settling allows, so that 75 s must pass: 15 steps."""

    def restless(count: int, seconds: float = 5.1, in_a_bin: int = 3) -> list[Step]:
        signs = (step // in_a_bin % 2 * 2 - 1 for step in range(count))
        return steps_of([5 * seconds, *(seconds * (1 + 0.0015 * sign) for sign in signs)])

    assert decided(restless(49))[0] == 15 + SOONEST
    assert decided(restless(18)) == (None, "3 of at least 15 steps are counted since step times have settled")
    assert decided(restless(18, seconds=3.9, in_a_bin=4)) == (None, "step times have not settled yet")


def test_a_run_too_short_to_settle_does_not_wait_for_it() -> None:
    assert decided(steps_of(noisy(50, seconds=1.0, noise=0.004)), ASKED._replace(half_width=0.05))[0] == SOONEST


@given(
    st.integers(0, 10_000),
    st.sampled_from([0.01, 1.0, 2.5, 5.0, 20.0]),
    st.sampled_from([0.001, 0.004, 0.02]),
    st.sampled_from([0.005, 0.02]),
)
def test_the_window_of_a_run_that_ended_has_the_steps_that_were_asked_for(
    seed: int, seconds: float, noise: float, target: float
) -> None:
    """Whatever the announced steps bring: settling may be seen in them, and take no counted step away."""
    steps = steps_of(noisy(50, noise, seconds, seed))
    reached, _ = decided(steps, ASKED._replace(half_width=target))
    if reached is None:
        return
    for lead in range(stopping.LONGEST_LEAD + 1):
        window, _ = choose_window(steps[: reached + 1 + lead], STEADY)
        assert window.counted >= ASKED.at_least


def test_what_a_worker_is_told_reads_back() -> None:
    for half_width in (0.005, 0.0005, 0.1, 1 / 3):
        asked = stopping.Until(half_width, 15, 50)
        assert stopping.Until.parse(asked.text()) == asked


# --- all ranks ------------------------------------------------------------------------------------


class Events:
    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def write(self, event: str, **fields: Any) -> None:
        self.written.append({"event": event, **fields})


class Store:
    """What ranks share; a rank hears what was said before a moment."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def heard(self) -> str | None:
        return self.said[0] if self.said else None


def rank(number: int, store: Store | None, begun: int, until: stopping.Until = ASKED) -> stopping.EarlyStop:
    return stopping.EarlyStop(rule(until), until, number, Events(), store, begun=begun)


def told(one: stopping.EarlyStop, step: Step) -> None:
    assert step.seconds is not None
    assert step.elapsed_seconds is not None
    one.after(step.step, step.seconds, step.elapsed_seconds, step.excluded_because)


@pytest.mark.parametrize("begun", [0, 1])
@pytest.mark.parametrize("unheard", [0, 1])
def test_all_ranks_end_after_the_same_step_however_late_they_hear(begun: int, unheard: int) -> None:
    """A rank that has finished a step knows that rank 0 had begun it, and so had looked at the one before.

    Where `begun` steps are under way when one is looked at, at the one before that. What it says later is unheard.
    """
    store = Store()
    first, other = rank(0, store, begun), rank(1, store, begun)
    steps = steps_of(noisy(50))
    for step in steps:
        looked_at = step.step - unheard * (1 + begun)
        if looked_at >= 0:
            told(first, steps[looked_at])
        told(other, step)
        if other.last is not None:
            break
    assert first.last == other.last == SOONEST + stopping.AHEAD + begun


def test_a_rank_that_hears_of_it_too_late_ends_with_an_error() -> None:
    """It has begun a step that the others will not train: it would wait for them for ever."""
    for begun in (0, 1):
        store = Store()
        store.say(f"{SOONEST},{SOONEST + 2}")
        with pytest.raises(SystemExit, match=f"rank 1 heard after step {SOONEST + 3 - begun} that the last one was"):
            told(rank(1, store, begun), steps_of(noisy(50))[SOONEST + 3 - begun])
        told(rank(1, store, begun), steps_of(noisy(50))[SOONEST + 2 - begun])


def test_every_rank_writes_it_down_and_ends_its_own_loop() -> None:
    store, ended = Store(), []
    for number in (0, 1):
        one = rank(number, store, begun=1)
        one.on_last = ended.append
        for step in steps_of(noisy(50))[: SOONEST + 1]:
            told(one, step)
        assert one._events.written == [{"event": "stopped", "step": SOONEST + 3, "decided": SOONEST}]
    assert ended == [SOONEST + 3] * 2
    assert store.said == [f"{SOONEST},{SOONEST + 3}"], "it is said once"


def test_one_process_needs_no_channel() -> None:
    one = rank(0, None, begun=0)
    for step in steps_of(noisy(50)):
        told(one, step)
    assert one.last == SOONEST + 2


@pytest.mark.parametrize(("steps", "ends_early"), [(SOONEST + 4, True), (SOONEST + 3, False)])
def test_an_end_that_would_spare_no_step_is_not_announced(steps: int, ends_early: bool) -> None:
    until = ASKED._replace(steps=steps)
    store = Store()
    one = rank(0, store, begun=0, until=until)
    for step in steps_of(noisy(steps)):
        told(one, step)
    assert bool(store.said) == ends_early
    assert (one.last is not None) == ends_early


def test_nobody_is_asked_before_anything_can_be_said() -> None:
    class Counting(Store):
        asked = 0

        def heard(self) -> str | None:
            self.asked += 1
            return None

    store = Counting()
    one = rank(1, store, begun=0)
    for step in steps_of(noisy(20)):
        told(one, step)
    assert store.asked == 20 - ASKED.at_least


def test_the_decision_follows_from_what_is_written_down() -> None:
    """Floats read back from JSON are the same numbers: a recomputation finds the same step."""
    for seed in range(20):
        steps = steps_of(noisy(50, noise=0.004, seed=seed))
        again = [
            Step(
                step=s.step,
                loss=None,
                tokens=None,
                **json.loads(json.dumps({"seconds": s.seconds, "elapsed_seconds": s.elapsed_seconds})),
            )
            for s in steps
        ]
        assert decided(steps) == decided(again)
