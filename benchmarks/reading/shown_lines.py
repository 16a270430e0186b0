"""Show a line of a log without its prefix, secrets and control characters. No I/O."""

import re

from benchmarks.secret_rules import Known, hidden_in_log
from benchmarks.text import printable

SHOWN_CHARACTERS = 200
# The prefix of a line, which is not part of the message: the writer (srun --label, torchrun, Ray) and the time.
WRITER = re.compile(
    rb"(?:\s*(?:\d{1,7}: |\[(?:rank|default)\d{1,7}\]:? ?|\((?:\w+ )?pid=\d+[^)]*\) "
    rb"|\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? ))*"
)


def shown_line(line: bytes, secrets: Known | None = None) -> str:
    """Return a line of a log as one row for display, without its prefix (rank, process, time) and secrets."""
    writer = WRITER.match(line)
    cleaned = hidden_in_log(line[writer.end() if writer else 0 :], secrets)
    text = " ".join(printable(cleaned.decode(errors="backslashreplace")).split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
