"""Which nights of a series are held against which: baseline, recent, since the last decision. Pure.

The newest baseline night is `gap_nights` ago, so that tonight and the nights just before are judged and are no
baseline. A short history makes the gap smaller: ten nights are a baseline, the eleventh is judged.

Nights that were not decided (inconclusive) stay out of the baseline while the rule still looks at them; those that
were suspect, and had no re-runs to say more, stay out for good.

An alarm is open from the first night that is judged a regression, or an improvement, on. While it is, the baseline
stands still: it is that of this first night, or the new level would creep in by the nights on which it was not seen.
It is closed by a night of no change, by calm nights in a row that lie at the old level, or by somebody who accepts:
then the new level begins with the alarm's first night. An improvement that has lasted nights enough for a baseline
is accepted by itself, so that a later loss of it is seen.
"""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.gate.rule_settings import G3, Rule
from benchmarks.gate.values import Verdict
from benchmarks.measuring import statistics
from benchmarks.values import Value

OLDER_LEVEL = "before the level that counts now"
OLDER = "older than the baseline"
BETWEEN = "after the baseline, before the nights that are judged"
DURING = "while an alarm was open"
NOT_RE_RUN = "suspect, and no re-runs to say more"
LEVELS: tuple[Verdict, ...] = ("regression", "improvement")  # verdicts that say that the level is another one


class PastNight(Value, frozen=True):
    """One night of one figure, as the gate looks back at it. Tonight is one too."""

    value: float  # of the night's first run: a re-run's in its place would make the noise look smaller than it is
    verdict: Verdict | None = None  # on this figure; None: it was never judged
    accepted: bool = False  # somebody said: this is the level from now on
    left_out: str = ""  # why it counts nowhere, such as a slowdown on purpose
    suspect: bool = False  # neither confirmed nor refuted that night
    control: float | None = None  # the control's value beside it


class Division(NamedTuple):
    """Positions in the series, oldest first; tonight is the last of `recent` and of `since`."""

    baseline: list[int]
    recent: list[int]
    since: list[int]
    left_out: dict[int, str]  # every other night, and why
    alarm: int | None = None  # the first night of the alarm that is open


def divide(nights: Sequence[PastNight], rule: Rule = G3) -> Division:
    """The series, oldest first, the last one tonight -> what each night is used as."""
    *earlier, _ = nights
    tonight, course = len(earlier), _Course(earlier, rule)
    left_out = {n: why for n, night in enumerate(earlier) if (why := _counts_nowhere(night))}
    left_out |= {n: OLDER_LEVEL for n in range(course.first) if n not in left_out}
    counting = [n for n in range(course.first, tonight) if n not in left_out]
    baseline = _baseline(earlier, counting, course, rule)
    after = [n for n in counting if not baseline or n > baseline[-1]]
    recent = [*after, tonight][-rule.gap_nights :]
    recent = recent if len(recent) == rule.gap_nights else [tonight]
    since = [*(n for n in _undecided(earlier, counting, rule) if n in after), tonight]
    for n in {*counting} - {*baseline, *recent, *since}:
        left_out[n] = _why_passed_over(n, earlier[n], baseline, course)
    return Division(baseline, recent, since, dict(sorted(left_out.items())), course.alarm)


def _why_passed_over(n: int, night: PastNight, baseline: Sequence[int], course: "_Course") -> str:
    if not course.able(n):
        if night.verdict in LEVELS:
            return f"judged {night.verdict}, and not accepted"
        return NOT_RE_RUN if night.suspect else DURING
    return OLDER if baseline and n < baseline[0] else BETWEEN


class _Course:
    """What the verdicts so far come to, night by night."""

    def __init__(self, earlier: Sequence[PastNight], rule: Rule) -> None:
        self.first = 0  # of the level that counts now
        self.through = -1  # up to here, verdicts were given against the level before
        self.alarm: int | None = None  # since when it is open, and what it says
        self.says: Verdict | None = None
        self.frozen: int | None = None  # the night whose baseline stands; an alarm of the other kind keeps it
        self.held: set[int] = set()  # nights of alarms
        self._earlier, self._rule = earlier, rule
        self._since: list[int] = []  # nights of the open alarm
        self._calm: list[int] = []  # its newest that were not judged to be at the new level
        if any(night.accepted or night.verdict in LEVELS for night in earlier):
            for n, night in enumerate(earlier):
                if not _counts_nowhere(night):
                    self._take(n, night)

    def able(self, n: int) -> bool:
        """Whether the night may be of a baseline."""
        return n <= self.through or not (n in self.held or self._earlier[n].suspect)

    def _take(self, n: int, night: PastNight) -> None:
        if night.verdict in LEVELS and night.verdict != self.says:
            self.alarm, self.says, self._since = n, night.verdict, []
            self.frozen = n if self.frozen is None else self.frozen
        if self.alarm is not None:
            self.held.add(n)
            self._since.append(n)
            self._calm = [] if night.verdict in LEVELS else [*self._calm, n]
        if night.accepted or self._has_lasted():
            self.first, self.through = n if self.alarm is None else self.alarm, n
            self._close()
        elif self.alarm is not None and (night.verdict == "no change" or self._is_back()):
            self.held -= {n} if night.verdict == "no change" else {*self._calm}
            self._close()

    def _close(self) -> None:
        self.alarm = self.says = self.frozen = None
        self._since, self._calm = [], []

    def _has_lasted(self) -> bool:
        """An improvement with nights for a baseline of its own: these are off, and to the side of the first."""
        fewest = self._rule.fewest_baseline_nights
        if self.says != "improvement" or len(self._since) < fewest:
            return False
        return (
            not self._near(self._since[-fewest:])
            and self._off(self._since[-fewest:]) * self._off(self._since[:1]) > 0
        )

    def _is_back(self) -> bool:
        """Enough nights in a row say nothing of a new level, and lie at the old one."""
        return len(self._calm) >= self._rule.calm_nights and self._near(self._calm[-self._rule.since_nights :])

    def _near(self, nights: Sequence[int]) -> bool:
        """Whether they lie at the level before the alarm, but for what nobody acts on."""
        return abs(self._off(nights)) <= self._rule.relevant

    def _off(self, nights: Sequence[int]) -> float:
        """Of their median from that of the nights before the alarm, as a share; 0 where there were none."""
        assert self.frozen is not None
        before = [n for n in range(self.first, self.frozen) if self.able(n) and not _counts_nowhere(self._earlier[n])]
        old = self._median(before[-self._rule.baseline_nights :])
        return self._median(nights) / old - 1 if old else 0.0

    def _median(self, nights: Sequence[int]) -> float:
        return statistics.median([self._earlier[n].value for n in nights]) or 0.0


def _counts_nowhere(night: PastNight) -> str:
    return night.left_out or ("its run was invalid" if night.verdict == "invalid" else "")


def _undecided(earlier: Sequence[PastNight], counting: Sequence[int], rule: Rule) -> list[int]:
    """The nights since the last decision, tonight aside, as many as the rule looks at."""
    found: list[int] = []
    for n in reversed(counting):
        if earlier[n].verdict != "inconclusive" or len(found) == rule.since_nights - 1:
            break
        found.insert(0, n)
    return found


def _baseline(earlier: Sequence[PastNight], counting: Sequence[int], course: _Course, rule: Rule) -> list[int]:
    """Nights before those held back; where that leaves too few, some of these too, the oldest first.

    While an alarm is open, as on its first night.
    """
    known = [n for n in counting if course.frozen is None or n < course.frozen]
    able = [n for n in known if course.able(n)]
    held_back = max(rule.gap_nights - 1, len(_undecided(earlier, known, rule)))
    before = {*known[: max(len(known) - held_back, 0)]}
    enough = max(sum(n in before for n in able), rule.fewest_baseline_nights)
    return able[:enough][-rule.baseline_nights :]
