"""How a line of a log is shown: without its writer, secrets and control characters. Pure."""

import re

from benchmarks.secret_rules import Known, hidden_in_log

SHOWN_CHARACTERS = 200
# Who wrote a line (srun --label, torchrun, Ray) and when: says nothing about why.
WRITER = re.compile(
    rb"(?:\s*(?:\d{1,7}: |\[(?:rank|default)\d{1,7}\]:? ?|\((?:\w+ )?pid=\d+[^)]*\) "
    rb"|\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? ))*"
)


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
