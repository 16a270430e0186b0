"""Where a run that stopped early says why: the text that follows its last training step; and how a line is shown.

Pure. Which lines mean what is data (configs/symptoms.yml); benchmarks/diagnosis finds them and says which was first.
"""

import io
import re
from typing import BinaryIO

from benchmarks.backend import LogFormat
from benchmarks.secret_rules import Known, hidden_in_log
from benchmarks.values import Value

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


class Ending(Value, frozen=True):
    """Why a run ended: the id of the symptom, and a text for people."""

    name: str
    text: str


# --- what is shown ----------------------------------------------------------------------------


def shown_line(line: bytes, secrets: Known | None = None) -> str:
    """A line as it may be shown: without its writer, without secrets, in one row of printable characters."""
    writer = WRITER.match(line)
    said = hidden_in_log(line[writer.end() if writer else 0 :], secrets)
    text = " ".join(printable(said.decode(errors="backslashreplace")).split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def printable(text: str) -> str:
    """Text that can't move a cursor or break a row: what is no printable character is written out."""
    safe = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    if safe.isprintable():
        return safe
    return "".join(c if c.isprintable() else " " if c == "\t" else repr(c)[1:-1] for c in safe)


# --- where to look ----------------------------------------------------------------------------


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
