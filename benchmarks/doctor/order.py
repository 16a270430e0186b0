"""Sort the findings in the logs of a failed run: the finding that is most likely the cause comes first. No I/O.

`Tier` is the order of the kinds. Within a tier, the earliest finding comes first: in one log by line, in several logs
by time stamp. Without a time stamp, the lower tier comes first. If Stepmark knows which rank failed first, the
findings of this rank come before those of other ranks.
"""

from collections.abc import Sequence
from enum import IntEnum
from heapq import merge

import msgspec

from benchmarks.doctor.evidence import OF_A_FAILURE, RECORDS, Finding, LogEvidence, Scanner, signature
from benchmarks.doctor.lines import Clock, rank_of_file
from benchmarks.doctor.symptoms import Kind, Symptoms
from benchmarks.values import Value


class Tier(IntEnum):
    CAUSE = 0
    JOB_CAUSE = 1
    UNKNOWN = 2
    DEATH = 3
    SILENCE = 4
    CONSEQUENCE = 5
    MARKED = 6
    SOFT = 7  # the line shows that the program continued
    END = 8


TIERS = {
    Kind.CAUSE: Tier.CAUSE,
    Kind.UNKNOWN: Tier.UNKNOWN,
    Kind.DEATH: Tier.DEATH,
    Kind.SILENCE: Tier.SILENCE,
    Kind.CONSEQUENCE: Tier.CONSEQUENCE,
    Kind.SUSPECT: Tier.MARKED,
}
# Tier -> the tier that it is merged with. Time stamps then decide the order, or the tier if a stamp is missing.
TIMED = {
    Tier.JOB_CAUSE: Tier.CAUSE,
    Tier.UNKNOWN: Tier.CAUSE,
    Tier.MARKED: Tier.CONSEQUENCE,
    Tier.SOFT: Tier.CONSEQUENCE,
}
MESSAGE_LINES = 5  # the most lines of an error's message
SOON_SECONDS = 60.0
# Findings about a log that shows neither an error nor the end of training, and their texts.
STOPPED, NO_STEP, NO_END = "stopped_early", "no_step", "no_end"
TEXTS = {NO_STEP: "the log has no step", NO_END: "the log has steps, but does not show the end of the training"}
NOT_AFTER_THE_END = "nccl_timeout"  # a rank that waits in a collective has not finished
ANY_YEAR = 2000  # the year of stamps without a year; such stamps are only compared within one log


class RunContext(Value, frozen=True):
    """What is known about a run from its records, in addition to its logs."""

    ended_well: bool = False
    failed: bool = False  # whether the record shows that the run failed
    reasons: list[str] = []  # from the result; without a result, the run's state and the next command
    first_rank: int | None = None  # the rank that failed first
    since: float | None = None  # lines before this time belong to an earlier attempt
    recorded: bool = False  # whether Stepmark started the run; if so, its record shows whether it ended


NOTHING = RunContext()


class Entry(Value, frozen=True):
    """One cause or symptom with its explanation, the first line that shows it, and its ranks."""

    id: str
    kind: Kind
    phase: str
    title: str
    means: str
    do: list[str]
    first: Finding
    ranks: list[int]


class Diagnosis(Value, frozen=True):
    """What the logs show about the failure of a run."""

    failed: bool
    entries: list[Entry]  # the first cause first
    warnings: list[Entry]  # problems after which the run continued, or that do not stop a run
    files: int
    bytes: int
    steps: int
    ended_well: bool
    reasons: list[str] = []  # for a run folder: RunContext.reasons

    @property
    def first(self) -> Entry | None:
        return self.entries[0] if self.entries else None


def diagnose(logs: Sequence[LogEvidence], symptoms: Symptoms, known: RunContext = NOTHING) -> Diagnosis:
    """Return the diagnosis: the findings of all logs in order, and the warnings."""
    case = _Case(symptoms, known)
    found = [one for log in logs for one in log.findings]
    ended_well = known.ended_well or (not known.failed and any(log.ended_well for log in logs))
    ended = ended_well or (not known.failed and any(log.ended for log in logs))
    trained = ended_well or (not known.failed and any(log.trained for log in logs))
    old = [one for one in found if known.since is not None and one.time is not None and one.time < known.since]
    # If training has ended, lines of a separate file, such as stderr, may be from before or after the end.
    others = {log.file for log in logs if ended and not (log.trained or log.ended)}
    calm = [one for one in found if one.file in others and not one.raised and (one.soft or one.id == Kind.SUSPECT)]
    warnings = [one for one in found if one not in old and (case.kind(one) == Kind.WARNING or one in calm)]
    counted = [one for one in found if one not in old and one not in warnings]
    # Lines that are marked as errors, but after which training continued.
    marked = [one for one in counted if one.id == Kind.SUSPECT and not (one.last or OF_A_FAILURE.match(one.text))]
    if (
        known.ended_well
        or (ended and all(map(case.is_warning, counted)))
        or (ended_well and all(map(case.may_follow_the_end, counted)))
        or (trained and counted == marked)
    ):
        warnings, counted = [*warnings, *counted], []
    if not (counted or known.recorded):
        counted = _unfinished(logs)
    survived = [one for log in logs for one in log.survived]
    return Diagnosis(
        failed=bool(counted) or known.failed,
        entries=case.entries(case.explaining(case.credible(counted))),
        warnings=case.entries([*warnings, *survived, *old]),
        files=len(logs),
        bytes=sum(log.bytes for log in logs),
        steps=sum(log.steps for log in logs),
        ended_well=ended_well,
        reasons=known.reasons,
    )


def first_cause(text: bytes, symptoms: Symptoms) -> Entry | None:
    """Return the first cause that a part of a log shows, or None."""
    scanner = Scanner(symptoms, "", Clock(ANY_YEAR))
    scanner.feed(text)
    found = diagnose([scanner.finish()], symptoms)
    return next((one for one in found.entries if one.kind not in (Kind.SUSPECT, Kind.BEGIN)), None)


def _unfinished(logs: Sequence[LogEvidence]) -> list[Finding]:
    """Return a finding if the logs do not show that training completed: no step, not the last step, or no end."""
    trained, ended = any(log.trained for log in logs), any(log.ended for log in logs)
    for log in logs:
        if log.progress is not None and not log.ended and (log.trained or not ended):
            return [Finding(STOPPED, log.file, max(1, log.lines), log.progress.text, None, None)]
    if any(log.ended_well for log in logs) or (trained and ended):
        return []
    longest = max(logs, key=lambda log: log.lines)
    name = NO_END if trained else NO_STEP
    return [Finding(name, longest.file, max(1, longest.lines), f"{TEXTS[name]}: {longest.last_line}", None, None)]


def _writer(one: Finding) -> int | str:
    return one.rank if one.rank is not None else one.file


class _Case:
    """The findings of one failed run: their kinds and their order."""

    def __init__(self, symptoms: Symptoms, known: RunContext) -> None:
        self._symptoms, self._known = symptoms, known

    def kind(self, one: Finding) -> Kind:
        symptom = self._symptoms.by_id.get(one.id)
        return symptom.kind if symptom else Kind(one.id)

    def is_warning(self, one: Finding) -> bool:
        """Return whether the line shows that the program continued, and is not the log's last error."""
        kind = self.kind(one)
        ends = one.last and (one.raised or kind == Kind.CAUSE)
        return one.soft and not ends and kind not in (Kind.END, Kind.DEATH, Kind.PASSED_ON)

    def may_follow_the_end(self, one: Finding) -> bool:
        """Return whether a process may print this line when it exits after successful training."""
        parts = self.kind(one) in (Kind.SILENCE, Kind.CONSEQUENCE) and not one.raised
        return parts and one.id != NOT_AFTER_THE_END

    def credible(self, found: Sequence[Finding]) -> list[Finding]:
        """Drop reports of silent peers by ranks that were silent themselves, because such reports are wrong."""
        silences = [one for one in found if self.kind(one) == Kind.SILENCE]
        silent: set[int | None] = set()
        void: set[Finding] = set()
        for one in sorted(silences, key=lambda one: (one.time or 0.0, one.line)):
            writer = rank_of_file(one.file)
            if writer is not None and writer in silent:
                void.add(one)
            else:
                silent.add(one.rank)
        return [one for one in found if one not in void]

    def explaining(self, found: Sequence[Finding]) -> list[Finding]:
        """Drop unknown errors that a known cause explains, and SUSPECT findings of ranks with more exact findings."""
        causes = [one for one in found if self.kind(one) == Kind.CAUSE and not one.soft]
        better = {_writer(one) for one in found if self.kind(one) in (Kind.CAUSE, Kind.UNKNOWN, Kind.DEATH)}
        return [
            one
            for one in found
            if not (one.id == Kind.UNKNOWN and any(self._explains(cause, one) for cause in causes))
            and not (one.id == Kind.SUSPECT and _writer(one) in better)
        ]

    def _explains(self, cause: Finding, unknown: Finding) -> bool:
        """Return whether a cause explains an unknown error: it is in another log, from Slurm, or near the error."""
        if _writer(cause) != _writer(unknown):
            return False
        late = cause.file != unknown.file or self._symptoms.by_id[cause.id].of == "job"
        return late or cause.line <= unknown.line + MESSAGE_LINES

    # --- the order ---

    def entries(self, found: Sequence[Finding]) -> list[Entry]:
        """Return one entry per symptom and per form of unknown error, in the order of their first lines."""
        groups: dict[str, list[Finding]] = {}
        for one in self._sorted(found):
            groups.setdefault(one.id if one.id in self._symptoms.by_id else signature(one.text), []).append(one)
        return [self._entry(group) for group in groups.values()]

    def _sorted(self, found: Sequence[Finding]) -> list[Finding]:
        """Return the findings of the first failed rank and of the job, then all others, both sorted by tier."""
        died = [one.time for one in found if self._is_first(one) and one.time is not None]
        long_after = min(died, default=float("inf")) + SOON_SECONDS
        parts: dict[tuple[bool, Tier], list[Finding]] = {}
        for one in found:
            tier = self._tier(one)
            place = TIMED.get(tier, tier)
            symptom = self._symptoms.by_id.get(one.id)
            of_job = symptom is not None and symptom.of == "job" and symptom.kind in (Kind.CAUSE, Kind.DEATH)
            if self._known.first_rank is not None and of_job and (one.time or 0.0) > long_after:
                place = Tier.END  # it occurred long after the rank failed
            is_other = self._known.first_rank is not None and not of_job and not self._is_first(one)
            parts.setdefault((is_other, place), []).append(one)
        return [one for key in sorted(parts) for one in self._by_time(parts[key])]

    def _is_first(self, one: Finding) -> bool:
        return self._tier(one) <= Tier.DEATH and one.rank is not None and one.rank == self._known.first_rank

    def _tier(self, one: Finding) -> Tier:
        kind = self.kind(one)
        if one.soft and kind in (Kind.CAUSE, Kind.UNKNOWN):
            return Tier.SOFT
        if kind == Kind.CAUSE and self._symptoms.by_id[one.id].of == "job":
            return Tier.JOB_CAUSE
        return TIERS.get(kind, Tier.END)

    def _by_time(self, found: Sequence[Finding]) -> list[Finding]:
        """Merge the findings of all logs by time. Findings without a stamp come first if their tier is not higher."""
        dated, undated = (
            self._merged([one for one in found if (one.time is None) == missing]) for missing in (False, True)
        )
        is_better_known = dated and undated and self._tier(undated[0]) <= self._tier(dated[0])
        return [*undated, *dated] if is_better_known else [*dated, *undated]

    def _merged(self, found: Sequence[Finding]) -> list[Finding]:
        logs: dict[str, list[Finding]] = {}
        for one in sorted(found, key=lambda one: (one.file, one.line, self._tier(one))):
            logs.setdefault(one.file, []).append(one)
        return list(merge(*logs.values(), key=lambda one: (one.time or 0.0, self._tier(one), one.file)))

    def _entry(self, group: Sequence[Finding]) -> Entry:
        first = group[0]
        if first.file.endswith(RECORDS):  # the rank's own message is more exact than a record
            own = (one for one in group if one.rank == first.rank and not one.file.endswith(RECORDS))
            if reported := next(own, None):
                first = msgspec.structs.replace(reported, time=reported.time or first.time)
        symptom = self._symptoms.by_id.get(first.id)
        families = self._symptoms.families if first.id == Kind.UNKNOWN else []
        family = next((one for pattern, one in families if pattern.search(first.text.encode())), None)
        title = "an unknown error" if first.id == Kind.UNKNOWN else "a line marked as an error"
        unknown = "This is the first error in the logs; it is not a known symptom."
        return Entry(
            id=first.id,
            kind=self.kind(first),
            phase=symptom.phase if symptom else "unknown",
            title=symptom.title if symptom else f"{title} ({family.title})" if family else title,
            means=symptom.means if symptom else f"{unknown} {family.means}" if family else unknown,
            do=symptom.do if symptom else family.do if family else ["read the lines before this line"],
            first=first,
            ranks=sorted({one.rank for one in group if one.rank is not None}),
        )
