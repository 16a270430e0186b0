"""Show a line of a log without the prefix of its writer, secrets and control characters. Pure."""

import re

from benchmarks.secret_rules import Known, hidden_in_log
from benchmarks.text import printable

SHOWN_CHARACTERS = 200
# The prefix that names the writer (srun --label, torchrun, Ray) and the time. It is not part of the message.
WRITER = re.compile(
    rb"(?:\s*(?:\d{1,7}: |\[(?:rank|default)\d{1,7}\]:? ?|\((?:\w+ )?pid=\d+[^)]*\) "
    rb"|\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? ))*"
)


def shown_line(line: bytes, secrets: Known | None = None) -> str:
    """Return a line for display: one row, without its prefix (rank, process, time) and without secrets."""
    writer = WRITER.match(line)
    cleaned = hidden_in_log(line[writer.end() if writer else 0 :], secrets)
    text = " ".join(printable(cleaned.decode(errors="backslashreplace")).split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
