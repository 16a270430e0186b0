"""Which of all that was found came first: the cause, and not who cries loudest. Pure.

A cause comes before an error nobody knows, that before a death whose reason is not said, that before what follows
from another's failure. Among causes and unknown errors the earliest counts: in one log the first line, of two logs
the earlier stamp, or the known one where a stamp is missing. Where it is known which rank failed first, what it says
comes before what the others say.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

import msgspec

from benchmarks.diagnosis.evidence import SUSPECT, UNKNOWN, Evaluation, Finding, LogEvidence, Scanner
from benchmarks.diagnosis.lines import Clock
from benchmarks.diagnosis.symptoms import Symptom, Symptoms
from benchmarks.logs.log_endings import Ending
from benchmarks.values import Value

CAUSE, JOB_CAUSE, UNKNOWN_ERROR, DEATH, CONSEQUENCE, MARKED, END = range(7)
TIERS = {"cause": CAUSE, "death": DEATH, "consequence": CONSEQUENCE, "end": END}
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
    found = [one for log in logs for one in (*log.findings, *_of_evaluations(log, symptoms.table.falling))]
    survived = [one for log in logs for one in log.survived]
    steps = sum(log.steps for log in logs)
    ended_well = known.ended_well or (not known.failed and any(log.ended_well for log in logs))
    old = [one for one in found if known.since is not None and one.time is not None and one.time < known.since]
    warns = [one for one in found if _is_warning(one, symptoms)]
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


def _is_warning(finding: Finding, symptoms: Symptoms) -> bool:
    symptom = symptoms.by_id.get(finding.id)
    return symptom is not None and symptom.kind == "warning"


def _explaining(found: Sequence[Finding], symptoms: Symptoms) -> list[Finding]:
    """Without errors of a rank that says why it failed, and marked lines of one that says anything better."""

    def is_of(one: Finding, kinds: tuple[str, ...]) -> bool:
        symptom = symptoms.by_id.get(one.id)
        return symptom is not None and symptom.kind in kinds

    explained = {_writer(one) for one in found if is_of(one, ("cause",))}
    better = {_writer(one) for one in found if one.id == UNKNOWN or is_of(one, ("cause", "death", "consequence"))}
    return [
        one
        for one in found
        if not (one.id == UNKNOWN and _writer(one) in explained)
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
        dated = min((one for one in heads if one.time is not None), key=self._dated, default=None)
        undated = min((one for one in heads if one.time is None), key=self._undated, default=None)
        if dated is None or undated is None:
            return dated or undated or heads[0]
        return undated if self._tier(undated) < self._tier(dated) else dated

    def _dated(self, one: Finding) -> tuple[float, int, str]:
        return (NEVER if one.time is None else one.time, self._tier(one), one.file)

    def _undated(self, one: Finding) -> tuple[int, str]:
        return (self._tier(one), one.file)

    def _tier(self, one: Finding) -> int:
        symptom = self._symptoms.by_id.get(one.id)
        if symptom is None:
            return UNKNOWN_ERROR if one.id == UNKNOWN else MARKED
        if symptom.kind == "cause" and symptom.of == "job":
            return JOB_CAUSE
        return TIERS.get(symptom.kind, END)

    def _entry(self, group: Sequence[Finding]) -> Entry:
        first = _said_best(group)
        symptom = self._symptoms.by_id.get(first.id) or _nobody_knows(first)
        return Entry(
            id=symptom.id,
            kind=symptom.kind if first.id in self._symptoms.by_id else first.id,
            phase=symptom.phase,
            title=symptom.title,
            means=symptom.means,
            do=symptom.do,
            source=symptom.source,
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


def _nobody_knows(finding: Finding) -> Symptom:
    """An error that is in no table: what it says is all there is."""
    error = finding.id == UNKNOWN
    return Symptom(
        id=finding.id,
        phase="unknown",
        kind="cause",
        of="rank",
        title="an error that is not known" if error else "a line marked as an error",
        words=[],
        pattern="",
        means="No known symptom: this is the first error "
        + ("that a Python traceback ends in." if error else "that is marked as one."),
        do=["read what stands before this line"],
        samples=[],
        source="the log itself",
    )


# --- lines of many ranks that say the same ------------------------------------------------------

HEX = re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b")
ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-f:]*:[0-9a-f:]+\](?::\d+)?")
HOST = re.compile(r"\b[a-zA-Z][a-zA-Z-]*\d+(?:[-.][a-zA-Z0-9-]+)*\b")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def shape(text: str) -> str:
    """A line without what differs from rank to rank: numbers, addresses, names of hosts."""
    for pattern, instead in ((HEX, "X"), (ADDRESS, "A"), (HOST, "H"), (NUMBER, "N")):
        text = pattern.sub(instead, text)
    return text


# --- evaluations that come no nearer to their target: no line says so, their values do ------------

STUCK, DIVERGING = "eval_stuck", "eval_diverging"
COMPARED = 3  # the last so many evaluations with the so many before them
LEAST_PROGRESS = 0.001  # of the value: of a published LoRA run each evaluation brings 0.003 or more
WORSE = 0.02


def _of_evaluations(log: LogEvidence, falling: Sequence[str]) -> list[Finding]:
    """What the evaluations of a log show that did not reach its target."""
    said = log.evaluations
    if log.ended_well or len(said) < 2 * COMPARED:
        return []
    last = said[-2 * COMPARED :]
    falls = log.benchmark in falling
    if falls and _diverges(said):
        return [_finding(DIVERGING, log, said[-COMPARED - 1 :])]
    return [_finding(STUCK, log, last)] if _is_stuck([one.value for one in last], falls) else []


def _is_stuck(values: Sequence[float], falls: bool) -> bool:
    """Where it is not known whether a value should fall or rise, it is stuck when it does neither."""
    before, after = values[:COMPARED], values[COMPARED:]
    least = LEAST_PROGRESS * abs(fmean(before))
    if falls:
        return min(before) - min(after) < least
    return abs(fmean(before) - fmean(after)) < least and max(values) - min(values) < 10 * least


def _diverges(said: Sequence[Evaluation]) -> bool:
    values = [one.value for one in said]
    last = values[-COMPARED - 1 :]
    rises = all(after > before for before, after in pairwise(last))
    return rises and values[-1] > min(values) * (1 + WORSE)


def _finding(name: str, log: LogEvidence, said: Sequence[Evaluation]) -> Finding:
    values = ", ".join(f"{one.value:.4g}" for one in said)
    return Finding(
        id=name,
        file=log.file,
        line=said[0].line,
        text=f"eval_accuracy of the last {len(said)} evaluations: {values}",
        rank=None,
        time=said[0].time,
        count=len(said),
    )
