"""Text of the screen -> Markdown, for a job's summary, a comment and TensorBoard. Pure."""

import re
from collections.abc import Sequence


def headed(text: str) -> str:
    """The same text: its first line as the heading, the rest as it is."""
    first, _, rest = text.partition("\n")
    return fenced(first, rest.strip("\n").split("\n"))


def fenced(heading: str, lines: Sequence[str]) -> str:
    """Markdown of a heading and lines as they are: what came from logs is no markup."""
    body = "\n".join(lines)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", body)), default=0))
    return f"## {heading}\n\n{fence}text\n{body}\n{fence}\n"
