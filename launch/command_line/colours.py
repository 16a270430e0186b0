"""What a terminal is sent: text that cannot move its cursor, and status words of tables in colour.

Whoever writes a table writes plain text.
"""

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

GREEN, YELLOW, RED = "32", "33", "31"
WORDS = {
    GREEN: ("valid", "ok", "agrees", "holds", "no change", "improvement", "better"),
    YELLOW: ("warning", "inconclusive", "suspect", "no verdict", "not checked", "not tried", "not submitted"),
    RED: ("invalid", "failed", "regression", "worse", "cut off", "unreadable", "missing", "does not hold"),
}
COLOURS = {word: colour for colour, words in WORDS.items() for word in words}
# A whole cell of benchmarks/rendering/columns.py: two spaces or an end of the line on either side.
# Or the first word after "NAME: ".
CELL = re.compile(rf"(?:(?<=  )|(?<=: )|^)({'|'.join(COLOURS)})(?=  |\s*$|[:;,] | \()", re.MULTILINE)


def coloured(text: str) -> str:
    return CELL.sub(lambda found: in_colour(found[1], COLOURS[found[1]]), text)


def in_colour(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m"


# What moves a cursor, changes how a terminal behaves, or shows text in another order than it has.
CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
)


def harmless(text: str) -> str:
    """Control characters as JSON writes them, so that a document is the same document."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Harmless:
    """Standard output or standard error: names, logs and records of anybody are printed."""

    def __init__(self, stream: TextIO, *made: Callable[[str], str]) -> None:
        self.own = stream  # for escapes of ours
        self._made = (harmless, *made)

    def write(self, text: str, /) -> int:
        made = text
        for step in self._made:
            made = step(made)
        self.own.write(made)
        return len(text)

    def writelines(self, lines: Any, /) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def own_stderr() -> TextIO:
    return sys.stderr.own if isinstance(sys.stderr, Harmless) else sys.stderr


def console() -> "Console":
    """For what moves the cursor on purpose; its texts are to be made harmless."""
    from rich.console import Console

    return Console(file=own_stderr(), markup=False, highlight=False)
