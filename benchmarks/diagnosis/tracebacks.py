"""The errors of a Python traceback, whoever's name stands before its lines, whose lines between them. Pure."""

import re

from benchmarks.diagnosis.stamps import label_of
from benchmarks.logs.log_endings import WRITER

TRACEBACK = b"Traceback (most recent call last):"
ERROR_LINE = re.compile(rb"[A-Za-z_][\w.]*(?:: .*)?$")
CHAINED = (b"The above exception was the direct cause", b"During handling of the above exception")
TRACEBACK_LINES = 2000  # a deep recursion is folded by Python after a few hundred


def error_lines(text: bytes, label: int | None = None) -> list[tuple[int, bytes]]:
    """The error of a traceback at the beginning of a text, and of those chained to it: where each stands, and itself.

    With a label, only the lines that this rank wrote belong to it.
    """
    found: list[tuple[int, bytes]] = []
    ended = False  # an error was read, and no further one is chained to it yet
    position = 0
    for number, whole in enumerate(text.split(b"\n", TRACEBACK_LINES)[:TRACEBACK_LINES]):
        start, position = position, position + len(whole) + 1
        if number == 0 or (label is not None and label_of(whole) != label):
            continue
        line = whole[writer_end(whole) :].rstrip()
        if line.startswith(CHAINED):
            ended = False
        elif not line or line[:1] in b" \t" or line.startswith(TRACEBACK):
            continue
        elif not ended and ERROR_LINE.match(line):
            found.append((start, line))
            ended = True
        elif ended:
            break
    return found


def writer_end(line: bytes) -> int:
    """Where the text of a line begins. A traceback is indented, so a blank more or less matters."""
    writer = WRITER.match(line)
    return writer.end() if writer and line[: writer.end()].strip() else 0
