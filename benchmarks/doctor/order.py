"""Which of all that was found came first: the cause, and not who cries loudest. Pure.

A cause or an error nobody knows comes before a death whose reason is not said, that before a rank of which another
heard nothing, that before what follows from another's failure and what is only marked as an error, and last what says
that it ended, or failed, and not why. In each of these the earliest counts: in one log the first line, of two logs
the earlier stamp, or the better known one where a stamp is missing. Where it is known which rank failed first, what
it says comes before what the others say.
"""

import re
from collections.abc import Sequence
from heapq import heappop, heappush

import msgspec

from benchmarks.doctor.evidence import (
    HANDED_ON,
    OF_A_FAILURE,
    RECORDS,
    SUSPECT,
    UNKNOWN,
    Finding,
    LogEvidence,
    Scanner,
    shape,
)
from benchmarks.doctor.lines import Clock, rank_of_file
from benchmarks.doctor.symptoms import Symptoms
from benchmarks.values import Value

CAUSE, JOB_CAUSE, UNKNOWN_ERROR, DEATH, SILENCE, CONSEQUENCE, MARKED, SOFT, END = range(9)
WORTH_MORE = ("cause", UNKNOWN, "death")  # than a line that is marked as an error
TIERS = {
    "cause": CAUSE,
    UNKNOWN: UNKNOWN_ERROR,
    "death": DEATH,
    "silence": SILENCE,
    "consequence": CONSEQUENCE,
    SUSPECT: MARKED,
}
SOLVED_BY_TIME = ((CAUSE, JOB_CAUSE, UNKNOWN_ERROR), (CONSEQUENCE, MARKED, SOFT))
MESSAGE_LINES = 5  # of an error
NEVER = float("inf")
SOON_SECONDS = 60.0
# What the end of a log says that shows no error, and in which words.
STOPPED, NO_STEP, NO_END = "stopped_early", "no_step", "no_end"
TEXTS = {NO_STEP: "the log ends without a step", NO_END: "the log ends with steps, and without an end"}
# What may follow a training that ended well, when its processes part: kinds, and symptoms.
AFTER_THE_END = ("silence", "consequence")
A_STEP_TOO_LONG = re.compile(
    r".*\*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ DUE TO TIME LIMIT|srun: error: .* Terminated$"
)
NOT_AFTER_THE_END = ("nccl_timeout",)  # ranks that wait for one another have not parted
ANY_YEAR = 2000  # of stamps without one; all are of one log


class Known(Value, frozen=True):
    """What is known beside the logs, of a run that left more than them."""

    ended_well: bool = False
    failed: bool = False  # for certain
    reasons: list[str] = []  # of its result; without one, what it waits for, and the command to run next
    first_rank: int | None = None  # that failed
    since: float | None = None  # what is older belongs to an earlier attempt
    recorded: bool = False  # a run of Stepmark's: whether it came to its end is not for its logs to say


NOTHING = Known()


class Entry(Value, frozen=True):
    """One thing that was found, at its first line."""

    id: str
    kind: str  # of a symptom; unknown or suspect
    phase: str
    title: str
    means: str
    do: list[str]
    source: str
    first: Finding
    ranks: list[int]
    lines: int  # that say so, in all logs


class Diagnosis(Value, frozen=True):
    """What logs say of a failure."""

    failed: bool
    entries: list[Entry]  # the first cause first
    warnings: list[Entry]  # what a run survived, or may survive
    files: int
    bytes: int
    steps: int
    ended_well: bool
    reasons: list[str] = []  # of a run: as in Known

    @property
    def first(self) -> Entry | None:
        return self.entries[0] if self.entries else None


def diagnose(logs: Sequence[LogEvidence], symptoms: Symptoms, known: Known = NOTHING) -> Diagnosis:
    """The order of all that the logs say."""
    found = [one for log in logs for one in log.findings]
    survived = [one for log in logs for one in log.survived]
    steps = sum(log.steps for log in logs)
    ended_well = known.ended_well or (not known.failed and any(log.ended_well for log in logs))
    old = [one for one in found if known.since is not None and one.time is not None and one.time < known.since]
    warns = [one for one in found if _kind(one, symptoms) == "warning"]
    counted = [one for one in found if one not in old and one not in warns]
    if known.ended_well:
        counted, survived = [], [*survived, *counted]
    ended = not known.failed and (ended_well or any(log.ended for log in logs))
    if ended:  # what stands beside it in a file of its own, as of stderr, has no place in time
        beside = {log.file for log in logs if not (log.trained or log.ended)}
        calm = [one for one in counted if one.file in beside and not one.raised and (one.soft or one.id == SUSPECT)]
        counted, survived = [one for one in counted if one not in calm], [*survived, *calm]
    if ended and all(_is_a_warning(one, symptoms) for one in counted):
        counted, survived = [], [*survived, *counted]
    if ended_well and not known.failed and all(_may_follow_the_end(one, symptoms) for one in counted):
        counted, survived = [], [*survived, *counted]
    alive = ended_well or (not known.failed and any(log.trained for log in logs))
    if alive and all(one.id == SUSPECT and not (one.last or OF_A_FAILURE.match(one.text)) for one in counted):
        counted, survived = [], [*survived, *counted]
    if not (counted or known.recorded):
        counted = _unfinished(logs)
    order = _Order(symptoms, known)
    return Diagnosis(
        failed=bool(counted) or known.failed,
        entries=order.entries(_explaining(_credible(counted, symptoms), symptoms)),
        warnings=order.entries([*warns, *survived, *old]),
        files=len(logs),
        bytes=sum(log.bytes for log in logs),
        steps=steps,
        ended_well=ended_well,
        reasons=known.reasons,
    )


def _unfinished(logs: Sequence[LogEvidence]) -> list[Finding]:
    """That no step was trained, or not the last, or that nobody knows. Nothing where a training came to its end."""
    trained, ended = any(log.trained for log in logs), any(log.ended for log in logs)
    for log in logs:
        if log.progress is not None and not log.ended and (log.trained or not ended):
            return [Finding(STOPPED, log.file, max(1, log.lines), log.progress.text, None, None)]
    if any(log.ended_well for log in logs) or (trained and ended):
        return []
    longest = max(logs, key=lambda log: log.lines)
    name = NO_END if trained else NO_STEP
    return [Finding(name, longest.file, max(1, longest.lines), f"{TEXTS[name]}: {longest.last_line}", None, None)]


def first_cause(text: bytes, symptoms: Symptoms) -> Entry | None:
    """What a piece of one log shows to have gone wrong first; None where it shows nothing."""
    scanner = Scanner(symptoms, "", Clock(ANY_YEAR))
    scanner.feed(text)
    found = diagnose([scanner.finish()], symptoms)
    return next((one for one in found.entries if one.kind not in (SUSPECT, "begin")), None)


def _may_follow_the_end(one: Finding, symptoms: Symptoms) -> bool:
    kinds = {one.id, _kind(one, symptoms)}
    too_long = one.count == 1 and A_STEP_TOO_LONG.match(one.text) is not None
    parts = not kinds.isdisjoint(AFTER_THE_END) and not one.raised
    return (too_long or parts) and kinds.isdisjoint(NOT_AFTER_THE_END)


def _is_a_warning(one: Finding, symptoms: Symptoms) -> bool:
    """Whether it says of itself that the program went on, and is no last word of it."""
    kind = _kind(one, symptoms)
    ends = one.last and (one.raised or kind == "cause")
    return one.soft and not ends and kind not in ("end", "death", HANDED_ON)


def _kind(finding: Finding, symptoms: Symptoms) -> str:
    """Of its symptom; else UNKNOWN, HANDED_ON or SUSPECT."""
    symptom = symptoms.by_id.get(finding.id)
    return symptom.kind if symptom else finding.id


def _credible(found: Sequence[Finding], symptoms: Symptoms) -> list[Finding]:
    """Without what a rank says of others' silence after it fell silent itself: once woken, it takes them for lost."""
    silences = [one for one in found if _kind(one, symptoms) == "silence"]
    silent: set[int | None] = set()
    void: set[Finding] = set()
    for one in sorted(silences, key=lambda one: (one.time or 0.0, one.line)):
        writer = rank_of_file(one.file)
        if writer is not None and writer in silent:
            void.add(one)
        else:
            silent.add(one.rank)
    return [one for one in found if one not in void]


def _explaining(found: Sequence[Finding], symptoms: Symptoms) -> list[Finding]:
    """Without unknown errors that a known cause explains, and marked lines of a rank that says anything better."""
    causes = [one for one in found if _kind(one, symptoms) == "cause" and not one.soft]
    better = {_writer(one) for one in found if _kind(one, symptoms) in WORTH_MORE}
    return [
        one
        for one in found
        if not (one.id == UNKNOWN and any(_explains(cause, one, symptoms) for cause in causes))
        and not (one.id == SUSPECT and _writer(one) in better)
    ]


def _explains(cause: Finding, unknown: Finding, symptoms: Symptoms) -> bool:
    """Before it or in the lines of its message; what Slurm says of the job comes at the end, and explains all."""
    if _writer(cause) != _writer(unknown):
        return False
    late = cause.file != unknown.file or symptoms.by_id[cause.id].of == "job"
    return late or cause.line <= unknown.line + MESSAGE_LINES


def _writer(one: Finding) -> int | str:
    return one.rank if one.rank is not None else one.file


class _Order:
    def __init__(self, symptoms: Symptoms, known: Known) -> None:
        self._symptoms, self._known = symptoms, known

    def entries(self, found: Sequence[Finding]) -> list[Entry]:
        """One for each symptom, and for each shape of what is not known, in the order of their first lines."""
        groups: dict[str, list[Finding]] = {}
        for one in self._sorted(found):
            groups.setdefault(one.id if one.id in self._symptoms.by_id else shape(one.text), []).append(one)
        return [self._entry(group) for group in groups.values()]

    def _sorted(self, found: Sequence[Finding]) -> list[Finding]:
        """The first rank's and the job's own, then all others; in each part the tiers, the first three by time."""
        died = [one.time for one in found if self._is_first(one) and one.time is not None]
        long_after = min(died, default=NEVER) + SOON_SECONDS
        parts: dict[tuple[int, int], list[Finding]] = {}
        for one in found:
            tier = self._tier(one)
            place = next((group[0] for group in SOLVED_BY_TIME if tier in group), tier)
            others = int(self._known.first_rank is not None)
            if others and self._is_of_job(one):  # what came long after a rank had died did not kill it
                others, place = 0, place if (one.time or 0.0) <= long_after else END
            elif others and self._is_first(one):
                others = 0
            parts.setdefault((others, place), []).append(one)
        return [one for key in sorted(parts) for one in self._by_time(parts[key])]

    def _is_of_job(self, one: Finding) -> bool:
        symptom = self._symptoms.by_id.get(one.id)
        return symptom is not None and symptom.of == "job" and symptom.kind in ("cause", "death")

    def _is_first(self, one: Finding) -> bool:
        return self._tier(one) <= DEATH and one.rank is not None and one.rank == self._known.first_rank

    def _by_time(self, found: Sequence[Finding]) -> list[Finding]:
        """The logs merged, each in the order of its lines: the earliest head goes first, or the better known one
        where a head has no time."""
        logs: dict[str, list[Finding]] = {}
        for one in sorted(found, key=lambda one: (one.file, one.line, self._tier(one)), reverse=True):
            logs.setdefault(one.file, []).append(one)
        dated: list[tuple[float, int, str]] = []  # heaps of the heads: time, tier and file
        undated: list[tuple[float, int, str]] = []

        def push(file: str) -> None:
            if logs[file]:
                head = logs[file][-1]
                heappush(undated if head.time is None else dated, (head.time or 0.0, self._tier(head), file))

        merged = []
        for file in logs:
            push(file)
        while dated or undated:
            first = undated if not dated or (undated and undated[0][1] < dated[0][1]) else dated
            file = heappop(first)[2]
            merged.append(logs[file].pop())
            push(file)
        return merged

    def _tier(self, one: Finding) -> int:
        symptom = self._symptoms.by_id.get(one.id)
        if one.soft and _kind(one, self._symptoms) in ("cause", UNKNOWN):
            return SOFT
        if symptom is not None and (symptom.kind, symptom.of) == ("cause", "job"):
            return JOB_CAUSE
        return TIERS.get(_kind(one, self._symptoms), END)

    def _entry(self, group: Sequence[Finding]) -> Entry:
        first = _said_best(group)
        symptom = self._symptoms.by_id.get(first.id)
        family = self._symptoms.family_of(first.text) if symptom is None and first.id == UNKNOWN else None
        title = "an error that is not known" if first.id == UNKNOWN else "a line marked as an error"
        unknown = "No known symptom: this is the first error that the logs show."
        return Entry(
            id=first.id,
            kind=_kind(first, self._symptoms),
            phase=symptom.phase if symptom else "unknown",
            title=symptom.title if symptom else f"{title} ({family.title})" if family else title,
            means=symptom.means if symptom else f"{unknown} {family.means}" if family else unknown,
            do=symptom.do if symptom else family.do if family else ["read what stands before this line"],
            source=symptom.source if symptom else "the log itself",
            first=first,
            ranks=sorted({one.rank for one in group if one.rank is not None}),
            lines=sum(one.count for one in group),
        )


def _said_best(group: Sequence[Finding]) -> Finding:
    """The first; where that is a record of how a process ended, the same rank's own words for it."""
    first = group[0]
    if not first.file.endswith(RECORDS):
        return first
    own = (one for one in group if one.rank == first.rank and not one.file.endswith(RECORDS))
    said = next(own, None)
    return first if said is None else msgspec.structs.replace(said, time=said.time or first.time)
