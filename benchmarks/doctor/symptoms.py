"""The known symptoms of failures, compiled from configs/symptoms.yml, which contains every failure pattern."""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarks.configs import read_yaml
from benchmarks.doctor.lines import writer_end
from benchmarks.reading.log_stream import without_colours
from benchmarks.values import Value

if TYPE_CHECKING:
    from benchmarks.doctor.picking import LinePicker  # numpy

FILE_NAME = "symptoms.yml"
# Every line that looks like an error contains one of these words (benchmarks/doctor/evidence.py).
LEVEL_WORDS = frozenset({b"error", b"exception", b"fatal", b"critical"})
FATAL_WORDS = LEVEL_WORDS | {b"what():", b"assertion", b"panic", b"check failed", b"non-ok-status", b".exc."}
UNABLE_WORDS = frozenset({
    b": cannot ", b": can't ", b"could not", b"couldn't", b"failed to", b"unable to", b"not found", b"no such file",
    b"permission denied", b" failed",
})  # fmt: skip
FRAME_WORD = b'", line '
ERROR_WORDS = {b"traceback (most recent", FRAME_WORD, *FATAL_WORDS, *UNABLE_WORDS}


BARS = "progress bars"
OF_ANOTHER = re.compile(
    rb"(?i)\b(?:epoch|eval\w*|valid\w*|test\w*|predict\w*|generat\w*|load\w*|download\w*|map|filter|token\w*|shards?)\b"
)
RECENT = 20  # how many of the last printed steps are used to find their distance


class Kind(StrEnum):
    """The kind of a finding: that of its symptom. A finding without a symptom has one of the last three kinds."""

    CAUSE = "cause"
    DEATH = "death"
    SILENCE = "silence"
    CONSEQUENCE = "consequence"
    END = "end"
    BEGIN = "begin"
    WARNING = "warning"
    UNKNOWN = "unknown"  # the line looks like an error, such as the end of a Python traceback
    SUSPECT = "suspect"  # the line is marked as an error
    PASSED_ON = "handed_on"  # the line only reports that another process failed


class Symptom(Value, frozen=True):
    """One symptom of failed runs, with its meaning and what to do."""

    id: str
    phase: str
    kind: Kind
    of: Literal["rank", "job"]
    title: str  # shown before the line; empty if the line explains itself
    words: list[str]  # every line that matches the pattern contains one of these words
    pattern: str
    means: str
    do: list[str]
    samples: list[str]
    source: str
    unless: str = ""  # lines that match this pattern do not show the symptom
    names: str = ""  # for a silence: a pattern that finds the silent ranks; without a group in it: rank 0
    then: str = ""  # a pattern for the lines that follow; its group continues the message
    info: bool = False  # whether lines of level INFO also show the symptom
    lasting: bool = False  # training may continue after this symptom, but its result is useless


class ErrorFamily(Value, frozen=True):
    """The explanation of errors without a symptom, selected by the Python class of the error."""

    pattern: str
    title: str
    means: str
    do: list[str]


class StepNumbers(Value, frozen=True):
    """How a log format numbers its steps (configs/symptoms.yml)."""

    of: str  # the programs that print steps in this format
    step: str  # a pattern for the number of a step and, if the line has it, of the last step
    last: str = ""  # a pattern for the number of the last step on a separate line
    words: list[str] = []  # every line that `last` matches contains one of these words
    counted_from: int = 1  # the number of the first step; 0: `last` then finds the number of steps
    unit: str = "step"


class Progress(Value, frozen=True):
    """How far training came: the last step that was printed, and the last step that was planned."""

    unit: str
    at: str
    last: str
    ended: bool  # whether training is complete, because no later step would be printed

    @property
    def text(self) -> str:
        return f"the log ends at {self.unit} {self.at} of {self.last}"


class SymptomTable(Value, frozen=True):
    """The contents of configs/symptoms.yml."""

    date: str
    progress: list[str]
    steps: list[StepNumbers]
    begins: list[list[str]]
    success: list[list[str]]
    trained: list[str]
    done: list[str]
    no_end: str
    bad_ends: list[str]
    harmless: list[str]
    no_evidence: list[str]
    info: list[str]
    symptoms: list[Symptom]
    errors: list[ErrorFamily]


class Symptoms:
    """The table of symptoms with compiled patterns."""

    def __init__(self, table: SymptomTable) -> None:
        self.table = table
        self.by_id = {one.id: one for one in table.symptoms}
        self.progress = [word.encode() for word in table.progress]
        self.progress_reader = ProgressReader(table.steps)
        self._begins, self._success = _in_bytes(table.begins), _in_bytes(table.success)
        self._trained, self._done = _any_of(table.trained), _any_of(table.done)
        self._no_end = re.compile(table.no_end.encode())
        # Matches lines with which any program, scheduler or shell reports a bad end.
        self.bad_ends = _any_of(table.bad_ends)
        self._shows = {one.id: re.compile(one.pattern.encode()) for one in table.symptoms}
        self.found_by: dict[bytes, list[Symptom]] = {}  # word -> the symptoms that a line with this word may show
        for one in table.symptoms:
            for word in one.words:
                self.found_by.setdefault(word.lower().encode(), []).append(one)
        # Each pattern is compiled separately, because one alternation of all would be tried at every byte of a line.
        self._quoting, self._info, self._harmless = (
            [re.compile(pattern.encode()) for pattern in patterns]
            for patterns in (table.no_evidence, table.info, table.harmless)
        )
        self.families = [(re.compile(one.pattern.encode()), one) for one in table.errors]

    @cached_property
    def picker(self) -> "LinePicker":
        """Return a picker for lines that contain a word of any symptom, success or error."""
        from benchmarks.doctor.picking import LinePicker

        return LinePicker(self.words())

    def words(self) -> list[bytes]:
        of_training = {row[0] for row in (*self._begins, *self._success)} | self.progress_reader.words
        return sorted({*self.found_by, *of_training, *ERROR_WORDS})

    def shown_by(self, line: bytes, candidates: Iterable[Symptom] | None = None) -> Iterator[Symptom]:
        """Yield the symptoms in a line. A line that only quotes text shows none; for level INFO, see Symptom.info."""
        informs: bool | None = None
        for one in self.table.symptoms if candidates is None else candidates:
            if not self._shows[one.id].search(line) or (one.unless and re.search(one.unless.encode(), line)):
                continue
            if informs is None:
                if self.quotes(line) or self.is_harmless(line):
                    return
                informs = self.informs(line)
            if one.info or not informs:
                yield one

    def where_in(self, line: bytes, symptom: Symptom) -> tuple[int, int]:
        """Return the start and the end of a symptom in a line; (0, 0) if the line does not show it."""
        found = self._shows[symptom.id].search(line)
        return found.span() if found else (0, 0)

    def continuation(self, text: bytes, symptom: Symptom) -> bytes:
        """Return the continuation of a symptom's message in the lines after it, or an empty text."""
        found = re.search(symptom.then.encode(), b"\n".join(_bare_lines(text)[1:])) if symptom.then else None
        return found[1] if found else b""

    def ranks_named(self, text: bytes, symptom: Symptom) -> list[int]:
        """Return the silent ranks that a symptom's message names, in its first line or in a later line."""
        found = re.search(symptom.names.encode(), b"\n".join(_bare_lines(text)))
        if found is None:
            return []
        return [0] if found[1] is None else [int(word.rpartition(b":")[2]) for word in found[1].split()]

    def matches(self, text: str, names: Sequence[str]) -> Iterator[tuple[Symptom, re.Match[bytes]]]:
        """Yield the named symptoms that the lines of a short text show, each with its match."""
        known = [self.by_id[name] for name in names]
        for line in without_colours(text.encode()).splitlines():
            bare = line[writer_end(line) :]
            for one in self.shown_by(bare, known):
                found = self._shows[one.id].search(bare)
                if found is not None:
                    yield one, found

    def quotes(self, line: bytes) -> bool:
        return any(one.search(line) for one in self._quoting)

    def informs(self, line: bytes) -> bool:
        begin = line[:120]
        return any(one.search(begin) for one in self._info)

    def is_irrelevant(self, line: bytes) -> bool:
        """Return whether a line quotes text, has level INFO, or also appears in successful runs."""
        return self.informs(line) or self.is_harmless(line) or self.quotes(line)

    def is_harmless(self, line: bytes) -> bool:
        return any(one.search(line) for one in self._harmless)

    def begins(self, line: bytes, picked: set[bytes]) -> bool:
        """Return whether a line that contains these words reports the start of training."""
        return _place_of_row(line, picked, self._begins) is not None

    def ends_well(self, line: bytes, picked: set[bytes]) -> bool:
        """Return whether a line that contains these words reports the end of training."""
        found = _place_of_row(line, picked, self._success)
        return found is not None and not self._no_end.search(line, found)

    def has_trained(self, line: bytes) -> bool:
        """Return whether a line after the last step reports that training is complete."""
        return self._trained.search(line) is not None and not self._no_end.search(line)

    def is_done(self, line: bytes) -> bool:
        """Return whether a line reports that a process or the job succeeded."""
        return self._done.search(line) is not None and not self._no_end.search(line)


def read_symptoms(configs_root: Path) -> Symptoms:
    return Symptoms(read_yaml(configs_root / FILE_NAME, SymptomTable))


def _bare_lines(text: bytes) -> list[bytes]:
    return [line[writer_end(line) :] for line in map(without_colours, text.split(b"\n"))]


def _in_bytes(rows: Sequence[Sequence[str]]) -> list[list[bytes]]:
    return [[word.lower().encode() for word in row] for row in rows]


def _place_of_row(line: bytes, picked: set[bytes], rows: Sequence[Sequence[bytes]]) -> int | None:
    """Return the position of a row's first word if the line contains all words of the row, otherwise None."""
    lower = line.lower()
    places = (lower.find(row[0]) for row in rows if row[0] in picked and all(word in lower for word in row))
    return next(places, None)


def _any_of(patterns: Sequence[str]) -> re.Pattern[bytes]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns).encode())


# --- the progress of a training ---------------------------------------------------------------------


class ProgressReader:
    """Reads how far training came, in any of the formats of step numbers."""

    def __init__(self, formats: Sequence[StepNumbers]) -> None:
        self._rows = [(one, re.compile(one.step.encode()), re.compile(one.last.encode())) for one in formats]
        self.words = {word.lower().encode() for one in formats for word in one.words}

    def lasts(self, line: bytes) -> dict[str, bytes]:
        """Return format -> number of the last step, for formats that print this number on a line like this one."""
        return {one.of: found[1] for one, _, last in self._rows if one.last and (found := last.search(line))}

    def of(self, end: bytes, lasts: dict[str, bytes]) -> Progress | None:
        """Return the progress at the end of a log; None if the format is unknown or does not print the last step."""
        for one, step, _ in self._rows:
            numbers = list(step.finditer(end))
            if numbers and one.of == BARS and numbers[-1][1] == numbers[-1][2]:
                # A complete progress bar may belong to an epoch or to loading instead of training.
                found = numbers[-1].start()
                begin = max(end.rfind(b"\n", 0, found), end.rfind(b"\r", 0, found)) + 1
                if OF_ANOTHER.search(end, begin, found):
                    return None
            last = lasts.get(one.of) if one.last else numbers[-1][2] if numbers else None
            if numbers and last:
                return _progress(one, [found[1] for found in numbers], _number(last) - (one.counted_from == 0))
        return None


def _progress(one: StepNumbers, printed: list[bytes], last: float) -> Progress:
    """Return the last printed and the last planned step. Training has ended if no further step would be printed."""
    numbers = [_number(text) for text in printed[-RECENT:]]
    apart = min((after - before for before, after in pairwise(numbers) if after > before), default=1.0)
    ended = numbers[-1] >= last or numbers[-1] + apart > last
    return Progress(unit=one.unit, at=printed[-1].decode(), last=f"{last:.0f}", ended=ended)


def _number(text: bytes) -> float:
    return float(text.replace(b",", b""))
