"""Which of all that was found came first: the cause, and not who cries loudest. Pure.

A cause comes before an error nobody knows, that before a death whose reason is not said, that before what follows
from another's failure. Among causes and unknown errors the earliest counts: in one log the first line, of two logs
the earlier stamp, or the known one where a stamp is missing. Where it is known which rank failed first, what it says
comes before what the others say.
"""

import re
from collections.abc import Sequence

import msgspec

from benchmarks.diagnosis.evidence import SUSPECT, UNKNOWN, Finding, LogEvidence, Scanner
from benchmarks.diagnosis.lines import Clock
from benchmarks.diagnosis.symptoms import Symptoms
from benchmarks.logs.log_endings import Ending
from benchmarks.values import Value

CAUSE, JOB_CAUSE, UNKNOWN_ERROR, DEATH, CONSEQUENCE, MARKED, END = range(7)
WORTH_MORE = ("cause", UNKNOWN, "death", "consequence")  # than a line that is marked as an error
TIERS = {"cause": CAUSE, UNKNOWN: UNKNOWN_ERROR, "death": DEATH, "consequence": CONSEQUENCE, SUSPECT: MARKED}
SOLVED_BY_TIME = (CAUSE, JOB_CAUSE, UNKNOWN_ERROR)
NEVER = float("inf")
SOON_SECONDS = 60.0
PYTHON_ERROR = "python_error"  # what an unknown error is called in the tables of many logs
ANY_YEAR = 2000  # of stamps without one; all are of one log


class Known(Value, frozen=True):
    """What is known beside the logs, of a run that left more than them."""

    ended_well: bool = False
    failed: bool = False  # for certain
    first_rank: int | None = None  # that failed
    since: float | None = None  # what is older belongs to an earlier attempt


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
    alive = ended_well or (steps > 0 and not known.failed)
    if alive and all(one.id == SUSPECT for one in counted):
        counted, survived = [], [*survived, *counted]
    order = _Order(symptoms, known)
    return Diagnosis(
        failed=bool(counted) or known.failed,
        entries=order.entries(_explaining(counted, symptoms)),
        warnings=order.entries([*warns, *survived, *old]),
        files=len(logs),
        bytes=sum(log.bytes for log in logs),
        steps=steps,
        ended_well=ended_well,
    )


def first_cause(text: bytes, symptoms: Symptoms) -> Entry | None:
    """What a piece of one log shows to have gone wrong first; None where it shows nothing."""
    scanner = Scanner(symptoms, "", Clock(ANY_YEAR))
    scanner.feed(text)
    found = diagnose([scanner.finish()], symptoms)
    return next((one for one in found.entries if one.kind != SUSPECT), None)


def ending_of(text: bytes, symptoms: Symptoms) -> Ending | None:
    """The same in one line, for the tables of many logs."""
    found = first_cause(text, symptoms)
    if found is None:
        return None
    if found.id == UNKNOWN:
        return Ending(name=PYTHON_ERROR, text=found.first.text)
    return Ending(name=found.id, text=f"{found.title}: {found.first.text}" if found.title else found.first.text)


def _kind(finding: Finding, symptoms: Symptoms) -> str:
    """Of its symptom; else UNKNOWN or SUSPECT."""
    symptom = symptoms.by_id.get(finding.id)
    return symptom.kind if symptom else finding.id


def _explaining(found: Sequence[Finding], symptoms: Symptoms) -> list[Finding]:
    """Without errors of a rank that says why it failed, and marked lines of one that says anything better."""
    kinds = {kind: {_writer(one) for one in found if _kind(one, symptoms) == kind} for kind in WORTH_MORE}
    better = set().union(*kinds.values())
    return [
        one
        for one in found
        if not (one.id == UNKNOWN and _writer(one) in kinds["cause"])
        and not (one.id == SUSPECT and _writer(one) in better)
    ]


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
            place = 0 if tier in SOLVED_BY_TIME else tier
            others = int(self._known.first_rank is not None)
            if others and tier == JOB_CAUSE:  # what came long after a rank had died did not kill it
                others, place = 0, place if (one.time or 0.0) <= long_after else END
            elif others and self._is_first(one):
                others = 0
            parts.setdefault((others, place), []).append(one)
        return [one for key in sorted(parts) for one in self._by_time(parts[key])]

    def _is_first(self, one: Finding) -> bool:
        return self._tier(one) <= DEATH and one.rank is not None and one.rank == self._known.first_rank

    def _by_time(self, found: Sequence[Finding]) -> list[Finding]:
        """The logs merged, each in the order of its lines: the earliest head goes first, or the better known one
        where a head has no time."""
        logs: dict[str, list[Finding]] = {}
        for one in sorted(found, key=lambda one: (one.file, one.line, self._tier(one))):
            logs.setdefault(one.file, []).append(one)
        merged = []
        while logs:
            first = self._first([log[0] for log in logs.values()])
            merged.append(logs[first.file].pop(0))
            if not logs[first.file]:
                del logs[first.file]
        return merged

    def _first(self, heads: Sequence[Finding]) -> Finding:
        dated = [one for one in heads if one.time is not None]
        undated = [one for one in heads if one.time is None]
        first = min(dated, key=lambda one: (one.time or 0.0, self._tier(one), one.file), default=None)
        other = min(undated, key=lambda one: (self._tier(one), one.file), default=None)
        if first is None or (other is not None and self._tier(other) < self._tier(first)):
            return other or heads[0]
        return first

    def _tier(self, one: Finding) -> int:
        symptom = self._symptoms.by_id.get(one.id)
        if symptom is not None and (symptom.kind, symptom.of) == ("cause", "job"):
            return JOB_CAUSE
        return TIERS.get(_kind(one, self._symptoms), END)

    def _entry(self, group: Sequence[Finding]) -> Entry:
        first = _said_best(group)
        symptom = self._symptoms.by_id.get(first.id)
        ended = "that a Python traceback ends in" if first.id == UNKNOWN else "that is marked as one"
        title = "an error that is not known" if first.id == UNKNOWN else "a line marked as an error"
        return Entry(
            id=first.id,
            kind=_kind(first, self._symptoms),
            phase=symptom.phase if symptom else "unknown",
            title=symptom.title if symptom else title,
            means=symptom.means if symptom else f"No known symptom: this is the first error {ended}.",
            do=symptom.do if symptom else ["read what stands before this line"],
            source=symptom.source if symptom else "the log itself",
            first=first,
            ranks=sorted({one.rank for one in group if one.rank is not None}),
            lines=sum(one.count for one in group),
        )


def _said_best(group: Sequence[Finding]) -> Finding:
    """The first; where that is a record of how a process ended, the same rank's own words for it."""
    first = group[0]
    if not first.file.endswith((".json", ".jsonl")):
        return first
    own = (one for one in group if one.rank == first.rank and not one.file.endswith((".json", ".jsonl")))
    said = next(own, None)
    return first if said is None else msgspec.structs.replace(said, time=said.time or first.time)


# --- lines of many ranks that say the same ------------------------------------------------------

DIFFERING = (
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b"), "X"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-f:]*:[0-9a-f:]+\](?::\d+)?"), "A"),
    (re.compile(r"\b[a-zA-Z][a-zA-Z-]*\d+(?:[-.][a-zA-Z0-9-]+)*\b"), "H"),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
)


def shape(text: str) -> str:
    """A line without what differs from rank to rank: numbers, addresses, names of hosts."""
    for pattern, instead in DIFFERING:
        text = pattern.sub(instead, text)
    return text
