"""The gate's rule: nights of one figure -> regression, improvement, no change or inconclusive, and why. Pure.

Which nights are held against which is nights.py; settings and their sources are rule_settings.py. The rule's errors
are simulated in simulation.py and tabled in docs/gate.md.

1. Screen: tonight, and the median of the last 3 nights, by a t test against the baseline. Far enough: suspect.
2. Confirm: the median of the re-runs, by the same test with a smaller p, the screen's nights left aside. With a
   control (control.py), the difference to it must have changed too: else it is the night, and inconclusive.
3. No change: the interval of the nights since the last decision lies within the margin on both sides, tonight is near
   the level too, and there are nights enough for this test.
4. Inconclusive otherwise, with the nights it takes, or that no number of nights would do.

An improvement is the mirror image of a regression, and needs the same confirmation.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from benchmarks.gate.control import Compared, Control, compare, usual_nights
from benchmarks.gate.level import Level, level, logarithms, median, median_of, middle_of
from benchmarks.gate.rule_settings import G3, Rule
from benchmarks.gate.sensitivity import nights_needed, shows_no_change, smallest_detectable, unreachable
from benchmarks.gate.values import Direction, Judged, Outcome, Verdict
from benchmarks.text import plural

__all__ = ["G3", "Decision", "Judged", "Rule", "decide", "judge", "stands"]

Because = Literal["short", "screen", "confirmed", "unconfirmed", "usual", "control", "not re-run", "wide", "same"]
RECENT = 3


class Test(NamedTuple):
    """One look at a distance from the level, in logarithms."""

    of: str
    distance: float
    variance: float  # in units of one night's
    p: float


class Decision(NamedTuple):
    """What is decided, by which test, against which level; the sentence is made from it."""

    outcome: Outcome
    because: Because
    level: Level | None
    test: Test | None
    reruns: int = 0
    nights: int = 0  # that the decision is about
    compared: Compared | None = None  # with the control, where a change was to be confirmed


def judge(
    baseline: Sequence[float],
    recent: Sequence[float],
    direction: Direction,
    confirmations: Sequence[float] | None = None,
    since: Sequence[float] = (),
    rule: Rule = G3,
    control: Control | None = None,
) -> Judged:
    """Tonight (`recent[-1]`, and `since[-1]` where there is a `since`) against the baseline nights, newest last.

    `confirmations` are the values of tonight's re-runs: None where none was made yet, empty where none can be.
    """
    decided = decide(baseline, recent, direction, confirmations, since, rule, control)
    found, test, count = decided.level, decided.test, len(baseline)
    if found is None or test is None:
        return Judged(
            verdict="inconclusive",
            why=f"{plural(count, 'night')} to hold tonight against: a baseline needs {rule.fewest_baseline_nights}",
            nights_needed=rule.fewest_baseline_nights - count,
            baseline_nights=count,
        )
    reach = found.reach(rule.confidence, test.variance)
    open_yet = decided.outcome == "inconclusive"
    more = nights_needed(found, decided.nights, rule) if open_yet else None
    never = open_yet and more is None and unreachable(found, decided.nights, rule)
    return Judged(
        verdict=decided.outcome,
        why=_why(decided, found, test, rule, _until(found, more, never)),
        baseline=math.exp(found.centre),
        baseline_nights=found.nights,
        effect_percent=_percent(test.distance),
        low_percent=_percent(test.distance - reach),
        high_percent=_percent(test.distance + reach),
        p=test.p,
        noise_percent=100 * found.deviation,
        smallest_detectable_percent=_percent(smallest_detectable(found, rule, direction)),
        nights_needed=more,
        unreachable=never,
    )


def decide(
    baseline: Sequence[float],
    recent: Sequence[float],
    direction: Direction,
    confirmations: Sequence[float] | None,
    since: Sequence[float],
    rule: Rule,
    control: Control | None = None,
) -> Decision:
    """The rule without its sentence: what a simulation of many nights needs."""
    if control is not None:
        usual = usual_nights(control, rule)
        baseline = [baseline[n] for n in usual]
        control = control._replace(baseline=[control.baseline[n] for n in usual])
    base = logarithms(baseline, "the baseline")
    last = logarithms(recent, "the recent nights")[-RECENT:]
    reruns = None if confirmations is None else logarithms(confirmations, "the re-runs")
    nights = logarithms(since, "the nights since the last decision")[-rule.since_nights :] or last[-1:]
    if len(base) < rule.fewest_baseline_nights:
        return Decision("inconclusive", "short", None, None)
    found = level(base, rule)
    sides = 2.0 if direction == "same" else 1.0
    suspicion = _screen(found, last, sides, rule)
    if suspicion is None:
        return _same_or_not(found, nights, "wide", 0, sides, rule)
    if reruns is None:
        return Decision("suspect", "screen", found, suspicion, nights=1)
    if len(reruns) < rule.confirmations:
        return Decision("inconclusive", "not re-run", found, suspicion, len(reruns), len(nights))
    # Their median counts as one night however many they are: re-runs of one night share what the night has.
    confirmed = _test(f"the median of {len(reruns)} re-runs is", found, (median(reruns), 1.0), sides)
    if _passes(confirmed, rule.confirm_p, rule) and confirmed.distance * suspicion.distance > 0:
        often = _happens(found, confirmed, [last[-1], *reruns]) >= rule.confirm_p
        said = control and compare(base, reruns, control.baseline, control.reruns, confirmed.distance, rule)
        refuted: Because | None = "usual" if often else "control" if said and not said.confirms else None
        outcome: Outcome = "inconclusive" if refuted else _to_which_side(confirmed, direction)
        return Decision(outcome, refuted or "confirmed", found, confirmed, len(reruns), len(nights), said or None)
    # Tonight was picked because it is far off; its re-runs were not picked.
    nights = [*nights[:-1], found.centre + confirmed.distance]
    return _same_or_not(found, nights, "unconfirmed", len(reruns), sides, rule)


def stands(
    baseline: Sequence[float],
    tonight: float,
    direction: Direction,
    before: Verdict | None,
    rule: Rule = G3,
    control: Control | None = None,
) -> Literal["regression", "improvement"] | None:
    """What the night before was confirmed to be, where tonight alone looks the same: it needs no re-runs again.

    Tonight alone, as the median of 3 nights is still slow on the night after a regression was mended.
    """
    if before not in ("regression", "improvement"):
        return None
    decided = decide(baseline, [tonight], direction, None, (), rule, control)
    if decided.outcome != "suspect" or decided.test is None or _to_which_side(decided.test, direction) != before:
        return None
    base, now = logarithms(baseline, "the baseline"), logarithms([tonight], "tonight")
    said = control and compare(base, now, control.baseline, [control.tonight], decided.test.distance, rule)
    return before if not said or said.confirms else None


def _screen(found: Level, last: Sequence[float], sides: float, rule: Rule) -> Test | None:
    """The stronger suspicion of the two; None: neither is one."""
    looks = [(_test("tonight is", found, (last[-1], 1.0), sides), rule.screen_p)]
    if len(last) == RECENT:
        looks.append(
            (_test(f"the median of the last {RECENT} nights is", found, median_of(last), sides), rule.screen_recent_p)
        )
    passed = [(test.p / p, test) for test, p in looks if _passes(test, p, rule)]
    return min(passed, key=lambda pair: pair[0])[1] if passed else None


def _happens(found: Level, confirmed: Test, runs: Sequence[float]) -> float:
    """How often as many of tonight's runs are as far off by chance, by the share of baseline nights that were.

    The spread does not know of nights that were left out or clipped: where one node in ten is slow, tonight's run and
    its re-runs meet slow nodes now and then.
    """
    as_far = _as_far(found, confirmed, found.odd)
    if not as_far:
        return 0.0
    from scipy.special import bdtrc

    seen = _as_far(found, confirmed, [run - found.centre for run in runs])
    return float(bdtrc(seen - 1, len(runs), (as_far + 1) / (found.nights + 2))) if seen else 1.0


def _as_far(found: Level, confirmed: Test, distances: Sequence[float]) -> int:
    """How many are as far off to the same side as the re-runs, but for noise."""
    sign, least = math.copysign(1.0, confirmed.distance), abs(confirmed.distance) - 2 * found.deviation
    return sum(sign * distance >= least for distance in distances)


def _test(of: str, found: Level, value: tuple[float, float], sides: float) -> Test:
    distance = value[0] - found.centre
    return Test(of, distance, value[1], min(sides * found.p(distance, value[1]), 1.0))


def _passes(test: Test, p: float, rule: Rule) -> bool:
    return test.p < p and abs(test.distance) >= rule.relevant_log


def _to_which_side(test: Test, direction: Direction) -> Literal["regression", "improvement"]:
    better = (test.distance < 0) if direction == "lower" else (test.distance > 0)
    return "improvement" if better and direction != "same" else "regression"


def _same_or_not(
    found: Level, nights: Sequence[float], because: Because, reruns: int, sides: float, rule: Rule
) -> Decision:
    """The equivalence test, made where it passes in 4 of 5 cases when there is no change, and not before: looked at
    night after night until it passes, it would pass too often. Tonight alone must be near the level as well: the
    nights before it would hide a change that began tonight.
    """
    of = "tonight is" if len(nights) == 1 else f"the last {len(nights)} nights are"
    test = _test(of, found, middle_of(nights), sides)
    within = abs(test.distance) + found.reach(rule.confidence, test.variance) < rule.same_log
    near = abs(nights[-1] - found.centre) < rule.relevant_log
    if within and near and shows_no_change(found, len(nights), rule):
        return Decision("no change", "same", found, test, reruns, len(nights))
    return Decision("inconclusive", because, found, test, reruns, len(nights))


# --- the sentence ---------------------------------------------------------------------------------


def _why(decided: Decision, found: Level, test: Test, rule: Rule, until: str) -> str:
    seen, margin = _seen(found, test, rule), _share_text(rule.same_within)
    if decided.because == "screen":
        return f"{seen}: {rule.confirmations} re-runs must confirm it"
    compared = decided.compared
    ends: dict[Because, str] = {
        "confirmed": ", which confirms the suspicion",
        "control": f", but {_control_text(compared)}" if compared else "",
        "not re-run": f", but only {decided.reruns} of {rule.confirmations} re-runs to confirm it were made",
        "usual": f", but so are now and then nights of the baseline ({_as_far(found, test, found.odd)} of them)",
    }
    if decided.because in ends:
        return seen + ends[decided.because]
    lead = f"{decided.reruns} re-runs did not confirm a suspicion; with them, " if decided.reruns else ""
    if decided.outcome == "no change":
        return f"{lead}{seen}: all of the interval lies within {margin}"
    if abs(test.distance) - found.reach(rule.confidence, test.variance) > rule.same_log:
        return f"{lead}{seen}: more than {margin}, but not sure enough for a verdict"
    return f"{lead}{seen}: a change of {margin} is not ruled out; {until}"


def _control_text(compared: Compared) -> str:
    if not compared.moved:
        return f"the difference to the control does not confirm it (p = {compared.p:.2g})"
    change = _share_text(abs(math.expm1(compared.distance)))
    return (
        f"it is the night or its nodes, not the cell: the control changed by {change} in the same direction, and the "
        f"difference to it is as usual (p = {compared.p:.2g})"
    )


def _seen(found: Level, test: Test, rule: Rule) -> str:
    reach = found.reach(rule.confidence, test.variance)
    low, high = (_percent(test.distance + side * reach) for side in (-1, 1))
    p = f"= {test.p:.2g}" if test.p >= 1e-4 else "< 0.0001"
    return (
        f"{test.of} {_share_text(abs(math.expm1(test.distance)))} {'above' if test.distance > 0 else 'below'} the "
        f"baseline of {plural(found.nights, 'night')} ({rule.confidence:.0%} interval {low:+.2f}% to {high:+.2f}%, "
        f"p {p})"
    )


def _until(found: Level, more: int | None, never: bool) -> str:
    noise = f"({_share_text(found.deviation)} from night to night)"
    if more is not None:
        return f"ruling it out takes about {plural(more, 'more night')} at this noise {noise}"
    if never:
        return f"no number of nights would rule it out at this noise {noise}"
    return f"it can be ruled out only if the noise {noise} turns out to be lower"


def _percent(log: float) -> float:
    return 100 * math.expm1(log)


def _share_text(share: float) -> str:
    return f"{100 * share:.2g}%" if abs(share) < 0.1 else f"{100 * share:.3g}%"
