"""Which nights of a series the latest one is compared with: the baseline, the recent nights, an open alarm. Pure.

The newest baseline night is 3 nights old, because the latest 3 nights are judged together. A short history shortens
this gap: ten nights are a baseline, and the eleventh is judged.

A suspect night that no re-runs confirmed or refuted never enters a baseline. An alarm opens with the first confirmed
`worse` or `better`. While it is open, the baseline does not move. It closes after a night of `same`, after 3 nights
in a row without suspicion, or when the user accepts the new level. A `better` of 10 nights is accepted by itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.nightly.rule import BASELINE_NIGHTS, FEWEST_BASELINE_NIGHTS, RECENT_NIGHTS
from benchmarks.nightly.values import Suspicion
from benchmarks.values import Value
from benchmarks.verdict import Verdict

CALM_NIGHTS = 3  # without suspicion, that close an alarm
OLDER_LEVEL = "before the accepted level"
OLDER = "older than the baseline"
DURING = "while an alarm was open"
UNCONFIRMED = "suspect, and not re-run"
UNDECIDED = (Suspicion.OPEN, Suspicion.SHARED)


class PastNight(Value, frozen=True):
    """One night of one figure."""

    value: float  # of the first run: a re-run's value would make the noise look smaller than it is
    verdict: Verdict | None = None  # on this figure; None if it was never judged
    suspicion: Suspicion = Suspicion.NONE
    accepted: bool = False  # the user said: this is the level from now on
    left_out: str = ""  # why it never counts, such as a deliberate slowdown


class Alarm(NamedTuple):
    first: int  # the night that opened it
    verdict: Verdict
    frozen: int  # nights before this one are the baseline


class Division(NamedTuple):
    """Positions in the series, oldest first; the latest night is the last of `recent`."""

    baseline: list[int]
    recent: list[int]
    left_out: dict[int, str]  # every other night, with the reason
    alarm: Alarm | None = None


def divide(nights: Sequence[PastNight]) -> Division:
    """Return how the nights of a series, oldest first, are used to judge the last one."""
    *earlier, _ = nights
    latest = len(earlier)
    left_out = {n: night.left_out for n, night in enumerate(earlier) if night.left_out}
    first, alarm, excluded = _course(earlier)
    left_out |= {n: OLDER_LEVEL for n in range(first) if n not in left_out}
    left_out |= {n: why for n, why in excluded.items() if n not in left_out}
    end = latest if alarm is None else alarm.frozen
    counting = [n for n in range(end) if n not in left_out]
    split = max(len(counting) - RECENT_NIGHTS + 1, min(len(counting), FEWEST_BASELINE_NIGHTS))
    baseline, recent = counting[:split][-BASELINE_NIGHTS:], counting[split:] if alarm is None else []
    for n in range(latest):
        if n not in left_out and n not in baseline and n not in recent:
            left_out[n] = OLDER if baseline and n < baseline[0] else DURING
    return Division(baseline, [*recent, latest], dict(sorted(left_out.items())), alarm)


def _course(earlier: Sequence[PastNight]) -> tuple[int, Alarm | None, dict[int, str]]:
    """Return the first night of the level that counts, the open alarm, and the nights that no baseline may hold."""
    first, calm = 0, 0
    alarm: Alarm | None = None
    excluded: dict[int, str] = {}
    for n, night in enumerate(earlier):
        if night.left_out:
            continue
        moved = night.verdict if night.verdict in (Verdict.WORSE, Verdict.BETTER) else None
        if moved and (alarm is None or alarm.verdict != moved):
            alarm = Alarm(n, moved, alarm.frozen if alarm else n)
        nights_better = n - alarm.first + 1 if alarm and alarm.verdict is Verdict.BETTER else 0
        if night.accepted or nights_better >= FEWEST_BASELINE_NIGHTS:
            first, alarm, excluded = alarm.first if alarm else n, None, {}
        elif night.suspicion in UNDECIDED:
            excluded[n] = UNCONFIRMED
        elif alarm is not None and night.verdict is Verdict.SAME:
            alarm = None
        elif alarm is not None:
            excluded[n] = DURING
            calm = 0 if moved else calm + 1
            alarm = alarm if calm < CALM_NIGHTS else None
    return first, alarm, excluded
