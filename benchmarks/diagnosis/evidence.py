"""One log -> what in it tells of a failure. Read as it comes and once; lines that tell nothing cost little. Pure."""

import re

import msgspec

from benchmarks.diagnosis.lines import TRACEBACK, Clock, error_lines, label_of, rank_in, writer_end
from benchmarks.diagnosis.symptoms import Symptoms
from benchmarks.logs.log_endings import shown_line
from benchmarks.logs.log_stream import without_colours
from benchmarks.values import Value

UNKNOWN = "unknown"  # the last line of a Python traceback that shows no known symptom
SUSPECT = "suspect"  # a line that is marked as an error, and no more is known of it

SURVIVED_STEPS = 3  # a rank may be so far ahead of another that has failed: more, and training went on
AHEAD_BYTES = 256 << 10  # how long a traceback may be
BEHIND_BYTES = 16 << 10  # how far back the last time stamp is looked for
MOST_WAITING = 16 << 20  # without the end of a line
LONGEST_LINE = 8 << 10  # of a longer line, so much about the word that was found
MARKED = re.compile(
    rb"(?:[\w./-]+: )*(?:\[?(?:error|Error|ERROR|fatal|FATAL|CRITICAL)\]?[: ]|[EF]\d{4} \d\d:\d\d|\[NeMo E )"
    rb"|[A-Za-z_][\w.]*(?:Error|Exception)(?:: |$)"
)
IGNORED = b"Exception ignored in"


class Finding(Value, frozen=True):
    """A line that tells of a failure."""

    id: str  # of a symptom; UNKNOWN or SUSPECT
    file: str
    line: int  # counted from 1
    text: str  # as it may be shown
    rank: int | None  # None: of the job, or nobody says
    time: float | None  # seconds of the local time; None: no stamp on it or before it
    count: int = 1  # how often, by this rank, in this file


class LogEvidence(Value, frozen=True):
    """What one log says."""

    file: str
    bytes: int
    steps: int  # lines that report training
    ended_well: bool  # and nothing follows but what is listed
    findings: list[Finding]
    survived: list[Finding]  # training went on after them


class _Seen:
    """One symptom of one rank: its first line that was not survived, and the first of all."""

    def __init__(self, finding: Finding, steps: int) -> None:
        self.first, self.count = finding, 0
        self.live: list[tuple[int, Finding]] = []
        self.add(finding, steps)

    def add(self, finding: Finding, steps: int) -> None:
        self.count += 1
        self.live = [one for one in self.live if one[0] + SURVIVED_STEPS > steps]
        if not self.live or self.live[-1][0] < steps:
            self.live.append((steps, finding))

    def lasts(self, steps: int) -> Finding | None:
        return next((one for at, one in self.live if at + SURVIVED_STEPS > steps), None)


class Scanner:
    """Reads one log piece after piece."""

    def __init__(self, symptoms: Symptoms, file: str, clock: Clock, rank: int | None = None) -> None:
        self._symptoms, self._file, self._clock, self._rank = symptoms, file, clock, rank
        self._picker = symptoms.picker
        self._text = b""
        self._done = 0  # in the text: lines that begin before it have been looked at
        self._before = 0  # bytes of the log before the text
        self._lines = 0  # that end before it
        self._traceback_until: dict[int | None, int] = {}  # by label: where the last that was read ends in the log
        self._bytes = 0
        self._steps = 0
        self._ended_well = False
        self._seen: dict[tuple[str, int | None], _Seen] = {}

    def feed(self, data: bytes) -> None:
        self._bytes += len(data)
        self._text += data
        waiting = len(self._text) - self._done
        if waiting > 2 * AHEAD_BYTES:
            end = self._text.rfind(b"\n", self._done, len(self._text) - AHEAD_BYTES) + 1
            self._look_until(len(self._text) - AHEAD_BYTES if end <= self._done and waiting > MOST_WAITING else end)

    def finish(self) -> LogEvidence:
        self._look_until(len(self._text))
        findings: list[Finding] = []
        survived: list[Finding] = []
        for (name, _), seen in self._seen.items():
            symptom = self._symptoms.by_id.get(name)
            last = seen.lasts(self._steps)
            shown = seen.first if last is None or (symptom is not None and symptom.lasting) else last
            counted = msgspec.structs.replace(shown, count=seen.count)
            (findings if last is not None else survived).append(counted)
        findings.sort(key=lambda one: one.line)
        return LogEvidence(
            file=self._file,
            bytes=self._bytes,
            steps=self._steps % _END_OF_TRAINING,
            ended_well=self._ended_well,
            findings=findings,
            survived=survived,
        )

    # --- a piece ---

    def _look_until(self, end: int) -> None:
        if end <= self._done:
            return
        begin = position = self._done
        for picked in self._picker.lines(self._text[begin:end]):
            self._pass(position, begin + picked.start)
            position = begin + picked.start
            self._look_at(position, begin + picked.end, begin + picked.at, picked.words)
        self._pass(position, end)
        keep = max(0, end - BEHIND_BYTES)
        self._before += keep
        self._text, self._done = self._text[keep:], end - keep

    def _pass(self, start: int, end: int) -> None:
        """Count the lines, and those that report training."""
        self._lines += self._text.count(b"\n", start, end)
        self._steps += sum(self._text.count(word, start, end) for word in self._symptoms.progress)

    # --- a line ---

    def _look_at(self, start: int, stop: int, word_at: int, words: set[bytes]) -> None:
        if stop - start > LONGEST_LINE:
            line = self._text[max(start, word_at - LONGEST_LINE // 2) : min(stop, word_at + LONGEST_LINE // 2)]
        else:
            line = self._text[start:stop]
        line = without_colours(line)
        bare = line[writer_end(line) :]
        lower = line.lower()
        if self._symptoms.ends_well(lower):
            self._steps = (self._steps // _END_OF_TRAINING + 1) * _END_OF_TRAINING + self._steps % _END_OF_TRAINING
            self._ended_well = True
            return
        candidates = {one.id: one for word in sorted(words) for one in self._symptoms.found_by(word)}
        shown = list(self._symptoms.shown_by(bare, candidates.values())) if candidates else []
        for symptom in shown:
            self._add(symptom.id, start, line, line)
        if not shown:
            self._look_for_the_unknown(start, line, bare)

    def _look_for_the_unknown(self, start: int, line: bytes, bare: bytes) -> None:
        if self._before + start < self._traceback_until.get(label_of(line), 0):
            return  # it is a part of one that was read
        known = self._symptoms
        if bare.startswith(TRACEBACK):
            self._take_traceback(start, line)
        elif MARKED.match(bare) and not (known.is_harmless(bare) or known.quotes(bare) or known.informs(bare)):
            self._add(SUSPECT, start, line, line)

    def _take_traceback(self, start: int, line: bytes) -> None:
        """The error that ended it; none where Python ignored it, or where it shows a known symptom."""
        errors = error_lines(self._text[start : start + AHEAD_BYTES], label_of(line))
        if not errors:
            return
        offset, said = errors[-1]
        self._traceback_until[label_of(line)] = self._before + start + offset + 1
        ignored = IGNORED in self._text[max(0, start - 400) : start]
        if ignored or any(True for _, error in errors for _ in self._symptoms.shown_by(error)):
            return
        self._add(UNKNOWN, start + offset, line, said, self._lines + self._text.count(b"\n", start, start + offset))

    def _add(self, name: str, start: int, written_by: bytes, line: bytes, lines: int | None = None) -> None:
        rank = rank_in(written_by)
        rank = self._rank if rank is None else rank
        key = (name, rank)
        seen = self._seen.get(key)
        if seen is not None and seen.live and self._steps == seen.live[-1][0]:
            seen.count += 1
            return
        finding = Finding(
            id=name,
            file=self._file,
            line=(self._lines if lines is None else lines) + 1,
            text=shown_line(line),
            rank=rank,
            time=self._time(start, line),
        )
        if seen is None:
            self._seen[key] = _Seen(finding, self._steps)
        else:
            seen.add(finding, self._steps)

    def _time(self, start: int, line: bytes) -> float | None:
        """On the line, else the last before it: in a log, time goes on from line to line."""
        time = self._clock.first(line)
        return time if time is not None else self._clock.last(self._text, max(0, start - BEHIND_BYTES), start)


_END_OF_TRAINING = 1 << 40  # counts as so many steps: whatever was before it was survived
