"""Find the evidence of a failure in one log, which is streamed once. Irrelevant lines are skipped fast. No I/O."""

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from benchmarks.doctor.lines import TRACEBACK, Clock, is_passed_on, rank_in, read_traceback, writer_end
from benchmarks.doctor.symptoms import (
    FATAL_WORDS,
    FRAME_WORD,
    LEVEL_WORDS,
    UNABLE_WORDS,
    Kind,
    Progress,
    Symptom,
    Symptoms,
)
from benchmarks.reading.log_stream import without_colours
from benchmarks.reading.shown_lines import SHOWN_CHARACTERS, shown_line
from benchmarks.secret_rules import shell_secrets
from benchmarks.values import Value

_END_OF_TRAINING = 1 << 40  # steps; reaching the end counts as this many, so training survived all earlier findings
SURVIVED_STEPS = 3  # a rank that fails may be this many steps behind; after more steps, training has continued
NEAR_BYTES = 16 << 10  # first limit for reading a traceback; most are shorter
AHEAD_BYTES = 256 << 10  # last limit for reading a traceback
LOSSES_OF_A_STEP = 8  # lines with a loss per step in an unknown format, because each rank of a node may print one
BEHIND_BYTES = 64 << 10  # how far before a line its last time stamp is searched
STEPS_WITHIN = BEHIND_BYTES  # the part at the end of a log in which its last steps are searched
MOST_WAITING = 16 << 20  # the most bytes in memory while a line has no end
ABOUT = 40  # characters of a long line that are shown before its symptom
RECORDS = (".json", ".jsonl")  # files that contain records of a launcher, not logs
LONGEST_MARK = 400  # how many first bytes of a line are searched for the mark of an error
LONGEST_LINE = 8 << 10  # of a longer line, only this many bytes around the searched word are read
MORE_WITHIN = 1500  # how many bytes after a line may continue its message
MOST_UNKNOWN = 20  # the most different unknown errors in one log
MOST_TRACEBACKS = 1000  # the most without a step between them; later ones cannot be the first error
MOST_SILENT = 16  # the most silent ranks that are read from one line
# What may precede an error in a line: nothing, or the line's writer (the last `name: ` if there are several).
PREFIXED = rb"(?:^|[\]>|):] *|\b[FP] |\s\s|\bErrorMessage \"|\"(?:message|msg|error|err|exception)\": *\")"
# An error that only a failing program prints: a named Python exception, or a fatal error of C++, C, Go, Rust or Java.
_FATAL = (
    PREFIXED + rb"(?P<error>[A-Za-z_][\w.]*(?:Error|Exception)(?:\([\w.]+\))?: +\S"
    rb"|(?:[a-z_]\w*\.)+(?:exc|errors?|exceptions?)\.(?!Simplified)[A-Z]\w+: +\S|F\d{4} \d\d:\d\d:\d\d"
    rb"|F +(?:\d+ +)?\S+\.cc:\d+\]|what\(\): +\S|Fatal Python error: |LLVM ERROR: |panic: "
    rb"|Error \w.{0,80} at line \d+ in file "
    rb"|thread '.*' panicked at|Exception in thread \"|\[?FATAL\b"
    rb"|\{[^{}]{0,200}\"(?:level|severity)\": ?\"(?:fatal|FATAL|critical|CRITICAL|panic|PANIC)\""
)
FATAL = re.compile(_FATAL + rb")")
FATAL_OR_ASSERTION = re.compile(_FATAL + rb"|(?:[\w./-]+: )*[^ ]*:\d+: .*\bAssertion [`'].*failed)")
# A line that is marked as an error.
MARKED = re.compile(
    PREFIXED + rb"(?:\[?(?:error|Error|fatal|Fatal|CRITICAL)[:\]]|[EF]\d{4} \d\d:\d\d|\[NeMo E "
    rb"|E +(?:\d+ +)?\S+\.cc:\d+\]|\[E\b|[A-Za-z_][\w.]*(?:Error|Exception)$)"
    rb"|(?:^|[\s\[(|/*])(?:ERROR|CRITICAL)(?:[\s\]):|,*]|$)|\b[Ee]rror (?:occurred|executing|while|during)\b"
    rb"|\bthe following errors?:|\bError reported to Coordinator: "
)
# A line in which a program reports that it could not do something, or a launcher reports such a program.
COULD_NOT = re.compile(
    rb": (?:[Cc]annot|[Cc]an't|[Cc]ould not|[Cc]ouldn't|[Ff]ailed to|[Uu]nable to|(?:command )?not found"
    rb"|No such file|Permission denied)\b"
)
UNABLE = re.compile(PREFIXED + rb"[\w./-]+(?:: line \d+)?(?:: [^ :]+)*" + COULD_NOT.pattern)
FAILED = re.compile(
    rb"\b(?:Pod|Job|Container|Task|Worker|Process|Training|Trial|Rank|Step)\b.{0,40} (?:has )?failed(?![\w=])"
    rb"|\b(?:job|training|run) failed\b"
)
SUMMARY_LINES = 8  # the most lines with losses after the line that reports the end of training
# A line that shows that the program continued. NCCL is excluded, because it prints WARN for fatal errors.
CONTINUED = re.compile(
    rb"\[W\d*[ :]|\bW\d{4} \d\d:|(?<!NCCL )(?<!=)\bWARN(?:ING)?\b|[Ww]arning: |(?:[.,;]|--) ?[Uu]sing \w"
    rb"|(?i:\b(?:ignor(?:ed|ing)|retry|retrying|retries|fall(?:ing)? back|fallback|halving|using \w+ instead)\b)"
    rb"|\bline \d+: \S+: (?:command not found|No such file or directory)$"  # a shell printed this
)
RAISED = re.compile(rb"\s*(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception)\b")
WARNS = re.compile(rb"\bWARN(?:ING)?\b|[Ww]arning: |\bW\d{4} \d\d:|: W +(?:\d+ +)?\S+\.cc:")
ANNOUNCES = 160  # how many first characters of a line are searched for its level
# No successful run prints any of these, even if it marks other lines as errors.
OF_A_FAILURE = re.compile(r"(?:srun|slurmstepd|salloc|sbatch|mpirun|mpiexec)\b|.*Traceback \(most recent")
LINES = re.compile(rb"[^\r\n]+")
# Matches a line about a training step in any format.
LOSSES = re.compile(rb"[Ll]oss(?: train)?[\"' ]{0,4}[:=|]? {0,8}[\"']?-?\d|Skipping step")
HEADLESS = re.compile(rb'  File \\?"[^"]+", line \d+, in ')  # a frame of a traceback whose beginning is missing
HEADLESS_LINES = re.compile(HEADLESS.pattern + rb"[^\n]*")
IGNORED = (b"Exception ignored in", b"Error in atexit._run_exitfuncs", b"Import of ")
# An error that Python or Megatron-Bridge ignored: its traceback and the line after it.
IGNORED_LINES = re.compile(
    rb"(?:Exception ignored in|Error in atexit|Import of \S+ from \S+ failed with: Traceback)[^\n]*\n"
    rb"(?:(?:Traceback [^\n]*\n)?(?:[ \t][^\n]*\n)*)?[^\n]*\n?"
)


def reports_continuation(line: bytes) -> bool:
    """Return whether a line shows that the program continued, such as a warning, a retry or a fallback."""
    return CONTINUED.search(line[:LONGEST_MARK]) is not None


class Finding(Value, frozen=True):
    """A line that is evidence of a failure."""

    id: str  # the id of a symptom, or a Kind if no known symptom matches the line
    file: str
    line: int  # counted from 1
    text: str  # the line without secrets, shortened for the screen
    rank: int | None  # None: the line belongs to the whole job, or its rank is unknown
    time: float | None  # in seconds, local time; None: neither the line nor a line before it has a stamp
    raised: bool = False  # whether the line names an exception
    soft: bool = False  # whether the line shows that the program continued
    last: bool = True  # whether no step and no report of success follows


class LogEvidence(Value, frozen=True):
    """The evidence of one log."""

    file: str
    bytes: int
    lines: int
    steps: int  # the number of lines that report training steps
    trained: bool  # whether the log has such lines, or losses in an unknown format
    progress: Progress | None  # None: the format is unknown or does not print the last step
    last_line: str  # without secrets, shortened for the screen
    ended: bool  # whether the log reports the end of the job or contains the last step
    ended_well: bool  # whether the log reports that training completed, so that earlier lines are not failures
    findings: list[Finding]
    survived: list[Finding]  # findings after which training continued


class _Occurrences:
    """One rank's lines with one symptom: the first line, and the lines after which training has not continued."""

    def __init__(self, finding: Finding, steps: int, place: int) -> None:
        self.first = finding
        self.place = place  # the position of the last such line in the log
        self.live: list[tuple[int, Finding]] = []
        self.add(finding, steps)

    def add(self, finding: Finding, steps: int) -> None:
        self.live = [one for one in self.live if one[0] + SURVIVED_STEPS > steps]
        if not self.live or self.live[-1][0] < steps:
            self.live.append((steps, finding))

    def lasts(self, steps: int) -> Finding | None:
        return next((one for at, one in self.live if at + SURVIVED_STEPS > steps), None)


class Scanner:
    """Reads one log piece by piece, and collects its evidence."""

    def __init__(self, symptoms: Symptoms, file: str, clock: Clock, rank: int | None = None) -> None:
        self._symptoms, self._file, self._clock, self._rank = symptoms, file, clock, rank
        self._picker = symptoms.picker
        self._secrets = shell_secrets()
        self._text = b""
        self._done = 0  # lines that start before this position in `_text` have been searched
        self._before = 0  # the number of bytes of the log before `_text`
        self._counted = 0  # lines that end before this position in `_text` are included in `_lines`
        self._lines = 0  # the number of lines so far
        self._tracebacks: list[tuple[re.Pattern[bytes], int]] = []  # the prefix and the end of each open traceback
        self._taken = Counter[int]()  # number of steps -> number of tracebacks read after these steps
        self._bytes = 0
        self._reported = 0  # the number of lines about training steps
        self._steps = 0  # the number of steps so far, which decides which findings training survived
        self._losses = 0
        self._success: int | None = None  # the number of steps before the last line that reports success
        self._begun = 0  # the position of the last line that reports a start, in the log
        self._last = 0  # the position of the last line that reports training or success, in the log
        self._lasts: dict[str, bytes] = {}  # format -> its last step, if the format prints it on a separate line
        self._seen: dict[tuple[str, int | None, str], _Occurrences] = {}

    def feed(self, data: bytes) -> None:
        self._bytes += len(data)
        self._text += data
        waiting = len(self._text) - self._done
        if waiting > 2 * AHEAD_BYTES:
            end = self._text.rfind(b"\n", self._done, len(self._text) - AHEAD_BYTES) + 1
            self._look_until(len(self._text) - AHEAD_BYTES if end <= self._done and waiting > MOST_WAITING else end)

    def finish(self) -> LogEvidence:
        self._look_until(len(self._text))
        floor = max(0, len(self._text) - STEPS_WITHIN)
        end = self._text[floor:]
        progress = self._symptoms.progress_reader.of(end, self._lasts)
        trained, done = self._look_behind_the_last(floor)
        well = self._success is not None and self._steps - self._success < SURVIVED_STEPS
        findings: list[Finding] = []
        survived: list[Finding] = []
        for (name, *_), seen in self._seen.items():
            symptom = self._symptoms.by_id.get(name)
            last = seen.lasts(self._steps)
            shown = seen.first if last is None or (symptom is not None and symptom.lasting) else last
            counted = msgspec.structs.replace(shown, last=seen.place >= self._last)
            (findings if last is not None else survived).append(counted)
        findings.sort(key=lambda one: one.line)
        return LogEvidence(
            file=self._file,
            bytes=self._bytes,
            lines=self._lines,
            steps=self._reported,
            trained=self._reported > 0 or self._losses > 0,
            progress=progress,
            last_line=shown_line(without_colours(end.rstrip().rpartition(b"\n")[2])),
            ended=well or trained or (done if progress is None else progress.ended),
            ended_well=well,
            findings=findings,
            survived=survived,
        )

    def _look_behind_the_last(self, floor: int) -> tuple[bool, bool]:
        """Return whether lines after the last step report that training ended, and that the job ended.

        If no finding follows the last step, add a finding for the first line that reports a bad end.
        """
        known, text, before = self._symptoms, self._text, self._before
        steps = [one for one in self._steps_in(floor) if one >= self._last - before]
        self._last = max(self._last, before + steps[-1]) if steps else self._last
        last = self._last - before
        start = text.find(b"\n", last) + 1 or len(text) if last > floor else floor
        early = start
        if not self._reported:
            summary = text.find(b"\n", steps[-SUMMARY_LINES]) + 1 if steps[SUMMARY_LINES:] else floor
            early = max(summary, self._begun - before)
        trained, done, bad = False, False, None
        for found in LINES.finditer(text, min(early, start)):
            line = without_colours(found[0])
            bare = line[writer_end(line) :][:LONGEST_MARK]
            if known.bad_ends.search(bare):
                means_it = found.start() >= start and not (known.is_irrelevant(bare) or reports_continuation(line))
                if means_it and not self._is_ignored(*found.span()):
                    bad = bad or found
            elif known.has_trained(bare):
                trained, bad, self._last = True, None, max(self._last, before + found.start())
            else:
                done = done or (found.start() >= start and known.is_done(bare))
        says_it_better = any(seen.place >= self._last for seen in self._seen.values())
        if bad and not says_it_better and not self._file.endswith(RECORDS):
            line = without_colours(bad[0])
            self._add(Kind.SUSPECT, bad.start(), self._writer(line), line)
        return trained, done

    def _steps_in(self, floor: int) -> list[int]:
        """Return the positions of the last lines that report training steps."""
        last = max((self._text.rfind(word, floor) for word in self._symptoms.progress), default=-1)
        return [last] if last >= 0 else [found.start() for found in LOSSES.finditer(self._text, floor)]

    # --- a piece ---

    def _look_until(self, end: int) -> None:
        if end <= self._done:
            return
        begin = self._counted = self._done
        for picked in self._picker.lines(self._text[begin:end]):
            self._look_at(begin + picked.start, begin + picked.end, begin + picked.at, picked.words)
        self._count(end)
        keep = max(0, end - BEHIND_BYTES)
        self._before += keep
        self._text, self._done = self._text[keep:], end - keep

    def _count(self, end: int) -> None:
        """Count all lines that end before this position, and the lines among them that report training."""
        start, self._counted = self._counted, max(self._counted, end)
        self._lines += self._text.count(b"\n", start, end)
        steps = sum(self._text.count(word, start, end) for word in self._symptoms.progress)
        self._reported += steps
        if not self._reported:
            before = self._losses
            self._losses += sum(1 for _ in LOSSES.finditer(self._text, start, end))
            steps = self._losses // LOSSES_OF_A_STEP - before // LOSSES_OF_A_STEP
        self._steps += steps

    # --- a line ---

    def _look_at(self, start: int, stop: int, word_at: int, words: set[bytes]) -> None:
        if words == {FRAME_WORD} and self._is_in_traceback(start, self._text[start:stop]):
            return
        if stop - start > LONGEST_LINE:
            line = self._text[max(start, word_at - LONGEST_LINE // 2) : min(stop, word_at + LONGEST_LINE // 2)]
        else:
            line = self._text[start:stop]
        line = without_colours(line)
        bare = line[writer_end(line) :]
        if self._symptoms.begins(line, words):
            self._success = None
            self._last = self._begun = self._before + start
        if self._symptoms.ends_well(line, words):
            self._take_success(start, line)
            return
        if not words.isdisjoint(self._symptoms.progress_reader.words):
            self._lasts.update(self._symptoms.progress_reader.lasts(bare))
        candidates = {one.id: one for word in sorted(words) for one in self._symptoms.found_by.get(word, [])}
        shown = list(self._symptoms.shown_by(bare, candidates.values())) if candidates else []
        if shown and (self._is_source(start, line) or self._is_ignored(start, stop)):
            return
        for symptom in shown:
            for rank in self._ranks(symptom, start, line):
                self._add(symptom.id, start, rank, line)
        if not shown:
            self._look_for_the_unknown(start, line, bare, words)

    def _ranks(self, symptom: Symptom, start: int, line: bytes) -> Sequence[int | None]:
        """Return the ranks with a symptom: the rank that wrote the line, or the silent ranks that the line names."""
        if not symptom.names:
            return [self._writer(line)]
        return self._symptoms.ranks_named(self._text[start : start + LONGEST_LINE], symptom)[:MOST_SILENT] or [None]

    def _take_success(self, start: int, line: bytes) -> None:
        """Mark earlier findings as survived, because training continued, except recent findings of other ranks."""
        self._count(start)
        rank, steps = self._writer(line), self._steps
        self._steps = self._success = (steps // _END_OF_TRAINING + 1) * _END_OF_TRAINING
        self._last = self._before + start
        for (name, writer, _), seen in self._seen.items():
            symptom = self._symptoms.by_id.get(name)
            if (rank is not None and writer is not None and writer != rank) or (symptom and symptom.lasting):
                seen.live = [(self._steps, one) for at, one in seen.live if at + SURVIVED_STEPS > steps]

    def _is_ignored(self, start: int, stop: int) -> bool:
        """Return whether a line belongs to an error that Python ignored."""
        near = self._text[max(0, start - LONGEST_LINE) : stop] + b"\n"
        place = max(map(near.rfind, IGNORED))
        return place >= 0 and IGNORED_LINES.fullmatch(near, place) is not None

    def _is_source(self, start: int, line: bytes) -> bool:
        """Return whether a line is the source code below a frame of a traceback, such as `raise ValueError(`."""
        if b"    " not in line:
            return False
        near = max(0, start - LONGEST_LINE)
        begin = max(near, self._text.rfind(b"\n", near, max(0, start - 1)) + 1)
        frame = HEADLESS.search(without_colours(self._text[begin:start]))
        return frame is not None and line.startswith(b"    ", frame.start())

    def _look_for_the_unknown(self, start: int, line: bytes, bare: bytes, words: set[bytes]) -> None:
        known, begin = self._symptoms, bare[:LONGEST_MARK]
        if self._is_in_traceback(start, line):
            return
        traceback = TRACEBACK in line or (FRAME_WORD in words and HEADLESS.search(line))
        if not traceback and known.informs(bare):  # at level INFO, a launcher may repeat a pod's errors
            return
        kind = None if traceback else _kind_of(begin, words)
        if not (traceback or kind) or WARNS.search(line[:ANNOUNCES]):
            return
        if traceback:
            self._take_traceback(start, line)
        elif kind and not (known.is_harmless(bare) or known.quotes(bare)):
            self._add(kind, start, self._writer(line), line)

    def _is_in_traceback(self, start: int, line: bytes) -> bool:
        """Return whether a line belongs to a traceback that was already read."""
        if not self._tracebacks:
            return False
        place = self._before + start
        self._tracebacks = [one for one in self._tracebacks if one[1] >= place]
        return any(prefix.match(line) for prefix, _ in self._tracebacks)

    def _take_traceback(self, start: int, line: bytes) -> None:
        """Add the first error of a traceback. Skip a traceback that Python ignored or that shows a known symptom."""
        self._taken[self._steps] += 1
        if self._taken[self._steps] > MOST_TRACEBACKS:
            return
        found = read_traceback(self._text[start : start + NEAR_BYTES])
        if not found.errors or found.end > NEAR_BYTES // 2:
            found = read_traceback(self._text[start : start + AHEAD_BYTES])
        self._tracebacks.append((found.prefix, self._before + start + found.end))
        raised = [one for one in found.errors if not is_passed_on(one[1])]
        if self._is_ignored(start, start + len(line)) or (found.errors and not raised):
            return
        if any(True for _, error in raised for _ in self._symptoms.shown_by(error)):
            return
        if not raised:
            # The error does not follow the traceback. Debuggers and interleaved ranks print it before the traceback.
            frames = HEADLESS_LINES.findall(self._text[start : start + found.end]) if TRACEBACK in line else []
            self._add(Kind.SUSPECT, start, self._writer(line), line + b" ..." + frames[-1] if frames else line)
            return
        offset, first_error = raised[0]
        if raised[-1] != raised[0]:
            first_error += b", then " + raised[-1][1]
        self._add(Kind.UNKNOWN, start + offset, self._writer(line), first_error)

    def _add(self, name: str, start: int, rank: int | None, line: bytes) -> None:
        self._count(start)
        text = self._full_text(line, start) if name == Kind.UNKNOWN and len(self._seen) < MOST_UNKNOWN else ""
        key = (name, rank, signature(text))
        seen = self._seen.get(key)
        if seen is not None:
            seen.place = self._before + start
        if seen is not None and seen.live and self._steps == seen.live[-1][0]:
            return
        time = self._clock.first(line)  # if the line has no time stamp, the last stamp before it is used
        finding = Finding(
            id=name,
            file=self._file,
            line=1 + self._lines - self._text.count(b"\n", start, self._counted),
            text=text or self._shown(name, line, start),
            rank=rank,
            time=time if time is not None else self._clock.last(self._text, max(0, start - BEHIND_BYTES), start),
            raised=RAISED.match(line, writer_end(line)) is not None,
            soft=reports_continuation(line),
        )
        if seen is None:
            self._seen[key] = _Occurrences(finding, self._steps, self._before + start)
        else:
            seen.add(finding, self._steps)

    def _writer(self, line: bytes) -> int | None:
        rank = rank_in(line)
        return self._rank if rank is None else rank

    def _full_text(self, line: bytes, start: int) -> str:
        """Return the line for the screen. If it ends with a colon or dots, the next line is appended."""
        begin = self._text.find(b"\n", start) + 1 if line.rstrip().endswith((b":", b"...")) else 0
        if begin:
            rest = without_colours(self._text[begin : begin + LONGEST_MARK].partition(b"\n")[0])
            line = line if TRACEBACK in rest else line.rstrip() + b" " + rest[writer_end(rest) :]
        return shown_line(line, self._secrets)

    def _shown(self, name: str, line: bytes, start: int) -> str:
        """Return the line for the screen. If the line is long, return the part that shows the symptom."""
        symptom = self._symptoms.by_id.get(name)
        begin, end = self._symptoms.where_in(line, symptom) if symptom else (0, 0)
        more = self._symptoms.continuation(self._text[start : start + MORE_WITHIN], symptom) if symptom else b""
        room = max(SHOWN_CHARACTERS // 2, SHOWN_CHARACTERS - len(more) - 10) if more else SHOWN_CHARACTERS
        if not more and end < room:
            return self._full_text(line, start)
        text = line if end < room else b"..." + line[max(0, begin - ABOUT) :]
        return shown_line(text[:room].rstrip() + b" ... " + more if more else text, self._secrets)


def _kind_of(text: bytes, words: set[bytes]) -> str | None:
    """Return the Kind of a line that shows no known symptom; None if the line does not look like an error."""
    ends = FATAL_OR_ASSERTION if b"Assertion" in text else FATAL
    if words & FATAL_WORDS and (fatal := ends.search(text)):
        return Kind.PASSED_ON if is_passed_on(text[fatal.start("error") :]) else Kind.UNKNOWN
    if words & LEVEL_WORDS and MARKED.search(text):
        return Kind.SUSPECT
    if words & UNABLE_WORDS:  # on long lines, COULD_NOT is faster than UNABLE
        if COULD_NOT.search(text) and UNABLE.search(text):
            return Kind.SUSPECT
        return Kind.PASSED_ON if FAILED.search(text) else None
    return None


# --- equal lines of many ranks ------------------------------------------------------------------

DIFFERING = (
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b"), "X"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-f:]*:[0-9a-f:]+\](?::\d+)?"), "A"),
    (re.compile(r"\b[a-zA-Z][a-zA-Z-]*\d+(?:[-.][a-zA-Z0-9-]+)*\b"), "H"),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
)


def signature(text: str) -> str:
    """Return the line without the parts that differ between ranks: numbers, addresses and host names."""
    for pattern, instead in DIFFERING:
        text = pattern.sub(instead, text)
    return text
