"""The answer of a command: text for the user or, with --json, one JSON document for a program.

With --json, stdout has only the document; everything else goes to stderr. A terminal is sent text that
cannot move its cursor, with verdicts and states of tables in colour.
"""

import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from absl import flags

if TYPE_CHECKING:
    from rich.console import Console

VERBOSE = "verbose"  # a command that has more to show declares it as a key flag
VERBOSE_FLAG = flags.DEFINE_boolean(VERBOSE, False, "Show everything instead of a screen.")

_kept: list[TextIO] = []  # standard output, from --json until its document is printed


def keep_for_json() -> None:
    _kept[:] = [sys.stdout]
    sys.stdout = sys.stderr


def verbose() -> bool:
    return bool(flags.FLAGS[VERBOSE].value)


def json_pending() -> bool:
    """Whether a document is still to be printed."""
    return bool(_kept)


def answer(data: object, text: str | Callable[[], str]) -> None:
    """Show the answer of a command. A function makes slow data or text only if it is shown."""
    if json_pending():
        document(data() if callable(data) else data)
    else:
        shown = text if isinstance(text, str) else text()
        print(shown, end="" if shown.endswith("\n") else "\n", flush=True)


def text_only(text: str) -> None:
    """The answer of a command that is text by its nature, such as a job script or --help."""
    answer({"text": text}, text)


def document(data: object) -> None:
    """Print the document with --json, for commands that print their text step by step."""
    if json_pending():
        from benchmarks.values import json_text

        print(json_text(data), end="", file=_kept.pop(), flush=True)


# --- colours ---------------------------------------------------------------------------------------

GREEN, YELLOW, RED = "32", "33", "31"
COLOURS = {
    **dict.fromkeys(("valid", "ok", "agrees", "better", "same"), GREEN),
    **dict.fromkeys(("inconclusive", "not tested", "not checked", "warning"), YELLOW),
    **dict.fromkeys(("invalid", "failed", "worse", "cut off", "unreadable", "missing", "first cause"), RED),
}
# A whole cell of benchmarks/text.py: two spaces or an end of the line on either side, or a colon behind it.
CELL = re.compile(rf"(?:(?<=  )|^)({'|'.join(COLOURS)})(?=  |\s*$|:)", re.MULTILINE | re.IGNORECASE)


def has_colours(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def coloured(text: str) -> str:
    return CELL.sub(lambda found: in_colour(found[0], COLOURS[found[0].lower()]), text)


def in_colour(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m"


# --- control characters ---------------------------------------------------------------------------

# What moves a cursor, changes how a terminal behaves, or shows text in another order than it has.
CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
)


def harmless(text: str) -> str:
    """Control characters as JSON writes them, so that a document is the same document."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def without_workflow_commands(text: str) -> str:
    """Return the text without parts of lines that GitHub would obey in a workflow's log."""
    return re.sub(r"^(\s*):(?=:)", r"\1\\u003a", text, flags=re.MULTILINE).replace("##[", "#\\u0023[")


class Harmless:
    """Standard output or standard error: names, logs and records of anybody are printed."""

    def __init__(self, stream: TextIO, *made: Callable[[str], str]) -> None:
        self.own = stream  # for our own escapes
        of_workflow = [without_workflow_commands] if os.environ.get("GITHUB_ACTIONS") else []
        self._made = (harmless, *of_workflow, *made)

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
