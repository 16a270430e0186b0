"""How a run that stopped early says why, read from the text that follows its last training step.

Pure: text and streams in, a reason out. Which lines mean what is data (configs/log_endings.yml); here
stands how they are ranked, where they are searched, and how a Python traceback is read.
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks.backend import LogFormat
from benchmarks.configs import read_yaml
from benchmarks.errors import RequestError
from benchmarks.log_stream import CHUNK_BYTES, without_colours
from benchmarks.values import Value

FILE_NAME = "log_endings.yml"
PYTHON_ERROR = "python_error"

# A reader takes a log in chunks of about 1 MiB, so the last step lies at most so far before what was read.
BEFORE_BYTES = 2 << 20
AFTER_BYTES = 2 << 20  # where the first process says why it died
TAIL_BYTES = 1 << 20  # and where the launcher says how all of them ended
SHOWN_CHARACTERS = 200

LINE_END = re.compile(rb"[\r\n]")
# Who wrote a line (srun --label, torchrun, Ray) and when: says nothing about why.
WRITER = re.compile(
    rb"(?:\s*(?:\d{1,7}: |\[(?:rank|default)\d{1,7}\]:? ?|\((?:\w+ )?pid=\d+[^)]*\) "
    rb"|\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? ))*"
)
SECRET = re.compile(
    rb"\bhf_\w{8,}|(?<=Bearer )\S+|(?<=bearer )\S+"
    rb"|(?i:(?<=token=)|(?<=token: )|(?<=secret=)|(?<=password=)|(?<=api_key=)|(?<=access_key=))[^\s&'\"]+"
)
HIDDEN = b"<redacted>"

TRACEBACK = b"Traceback (most recent call last):"
ERROR_LINE = re.compile(rb"[A-Za-z_][\w.]*(?:: .*)?$")
CHAINED = (b"The above exception was the direct cause", b"During handling of the above exception")
TRACEBACK_LINES = 2000  # a deep recursion is folded by Python after a few hundred


class EndingRule(Value, frozen=True):
    """One way to end: the line that shows it, and what to call it."""

    name: str
    title: str  # said before the line; empty where the line says it itself
    pattern: str
    samples: list[str]
    source: str


class EndingRules(Value, frozen=True):
    """configs/log_endings.yml: the causes outrank a Python error, which outranks the symptoms."""

    date: str
    causes: list[EndingRule]
    symptoms: list[EndingRule]


class Ending(Value, frozen=True):
    """Why a run ended: the name of the rule, and a text for people."""

    name: str
    text: str


class Endings:
    """The rules, ready to be searched for."""

    def __init__(self, rules: EndingRules, where: str = FILE_NAME) -> None:
        self._causes = [(rule, _compiled(rule, where)) for rule in rules.causes]
        self._symptoms = [(rule, _compiled(rule, where)) for rule in rules.symptoms]

    def find(self, text: bytes) -> Ending | None:
        """The reason that a piece of a log shows; None where it shows none."""
        plain = without_colours(text).replace(b"\r", b"\n")
        return _first_of(self._causes, plain) or _python_error(plain) or _first_of(self._symptoms, plain)


def read_endings(configs_root: Path) -> Endings:
    path = configs_root / FILE_NAME
    return Endings(read_yaml(path, EndingRules), str(path))


def _compiled(rule: EndingRule, where: str) -> re.Pattern[bytes]:
    try:
        return re.compile(rule.pattern.encode(), re.MULTILINE)
    except re.error as error:
        raise RequestError(f"'{rule.name}' has a pattern that is none: {error}", where=f"{where}: pattern") from error


def _first_of(rules: Sequence[tuple[EndingRule, re.Pattern[bytes]]], text: bytes) -> Ending | None:
    for rule, pattern in rules:
        match = pattern.search(text)
        if match:
            shown = shown_line(_line_around(text, match.start()))
            return Ending(name=rule.name, text=f"{rule.title}: {shown}" if rule.title else shown)
    return None


def _line_around(text: bytes, position: int) -> bytes:
    end = text.find(b"\n", position)
    return text[text.rfind(b"\n", 0, position) + 1 : end if end >= 0 else len(text)]


def shown_line(line: bytes) -> str:
    """A line as it may be shown: without its writer, without secrets, in one row of printable characters."""
    writer = WRITER.match(line)
    said = SECRET.sub(HIDDEN, line[writer.end() if writer else 0 :])
    text = " ".join(printable(said.decode(errors="backslashreplace")).split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def printable(text: str) -> str:
    """Text that can't move a cursor or break a row: what is no printable character is written out."""
    safe = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else " " if c == "\t" else repr(c)[1:-1] for c in safe)


# --- Python errors ----------------------------------------------------------------------------


def _python_error(text: bytes) -> Ending | None:
    """The last line of the first traceback; of chained ones, the last, which is what ended the process."""
    start = text.find(TRACEBACK)
    if start < 0:
        return None
    lines = text[start:].split(b"\n", TRACEBACK_LINES)[1 : TRACEBACK_LINES + 1]
    error: bytes | None = None
    for line in (line[_writer_end(line) :].rstrip() for line in lines):
        goes_on = not line or line[:1] in b" \t" or line.startswith((TRACEBACK, *CHAINED))
        if line.startswith(CHAINED):
            error = None
        elif error is None and not goes_on and ERROR_LINE.match(line):
            error = line
        elif error is not None and not goes_on:
            break
    return None if error is None else Ending(name=PYTHON_ERROR, text=shown_line(error))


def _writer_end(line: bytes) -> int:
    """Where the text of a line begins. A traceback is indented, so a blank more or less matters."""
    writer = WRITER.match(line)
    return writer.end() if writer and line[: writer.end()].strip() else 0


# --- where to look ----------------------------------------------------------------------------


class CountedStream(io.RawIOBase):
    """A stream that knows how far it was read: about there is the step that was just reported."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self.position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = self._stream.seek(offset, whence)
        return self.position

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)

    def buffered(self) -> BinaryIO:
        return io.BufferedReader(self, CHUNK_BYTES)


def ending_text(stream: BinaryIO, log_format: LogFormat | None, last_step_near: int | None) -> bytes:
    """What a log says after its last training step: the beginning of it, and its end.

    `last_step_near` is how far the log had been read when its last step was reported; None: it has none.
    """
    size = stream.seek(0, io.SEEK_END)
    start = max(0, last_step_near - BEFORE_BYTES) if last_step_near is not None else 0
    stop = (last_step_near or 0) + AFTER_BYTES
    stream.seek(start)
    text = stream.read(stop - start)
    if log_format is not None and last_step_near is not None:
        text = _after_last_step(text, log_format)
    if size <= stop:
        return text
    stream.seek(max(stop, size - TAIL_BYTES))
    return text + b"\n" + stream.read(TAIL_BYTES)


def _after_last_step(text: bytes, log_format: LogFormat) -> bytes:
    """What follows the last step line, whatever a step line looks like: found by halving."""
    if not _has_step(text, log_format):
        return text
    low, high = (
        0,
        len(text),
    )  # from `low` on there is a step; from the first line that begins at `high` or later, none
    while high - low > 1:
        middle = (low + high) // 2
        line = _next_line(text, middle)
        if line < high and _has_step(text[line:], log_format):
            low = line
        else:
            high = middle
    return text[_next_line(text, low + 1) :]


def _next_line(text: bytes, position: int) -> int:
    """Where the first line begins at or after a position; a progress bar's lines end in carriage returns."""
    match = LINE_END.search(text, max(0, position - 1))
    return match.end() if match else len(text)


def _has_step(text: bytes, log_format: LogFormat) -> bool:
    return any(event.step is not None for event in log_format.read(io.BytesIO(text)))
