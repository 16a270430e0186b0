"""Show the result of a command: text for the user or, with --json, one JSON document for a program.

With --json, stdout gets only the document, and all other text goes to stderr. Text is escaped so that it
cannot move a terminal's cursor. On a terminal, verdicts and states in tables have colours.
"""

import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from absl import flags

if TYPE_CHECKING:
    from rich.console import Console

VERBOSE = "verbose"  # a command with more output declares this as a key flag
VERBOSE_FLAG = flags.DEFINE_boolean(VERBOSE, False, "Show all details instead of a short summary.")

_kept: list[TextIO] = []  # with --json, standard output until the document is printed


def keep_for_json() -> None:
    _kept[:] = [sys.stdout]
    sys.stdout = sys.stderr


def verbose() -> bool:
    return bool(flags.FLAGS[VERBOSE].value)


def json_pending() -> bool:
    """Return whether --json is set and the document has not been printed."""
    return bool(_kept)


def answer(data: object, text: str | Callable[[], str]) -> None:
    """Show the result of a command: `text`, or with --json `data`. If it is a function, show the returned value."""
    if json_pending():
        document(data() if callable(data) else data)
    else:
        shown = text if isinstance(text, str) else text()
        print(shown, end="" if shown.endswith("\n") else "\n", flush=True)


def text_only(text: str) -> None:
    """Show a result that is only text, such as a job script or --help; with --json, in the field `text`."""
    answer({"text": text}, text)


def document(data: object) -> None:
    """With --json, print the document; for commands that print their text step by step."""
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
# A whole cell in a table (benchmarks/text.py): between double spaces or ends of the line, or before a colon.
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

# Characters that move the cursor, change the behaviour of a terminal, or change the displayed order of text.
CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
)


def harmless(text: str) -> str:
    """Escape control characters as in JSON, so that a JSON document keeps its meaning."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def without_workflow_commands(text: str) -> str:
    """Escape the words in a text that GitHub would run as commands in a workflow's log."""
    return re.sub(r"^(\s*):(?=:)", r"\1\\u003a", text, flags=re.MULTILINE).replace("##[", "#\\u0023[")


class Harmless:
    """A stream that escapes its text, because commands print names, logs and records from untrusted sources."""

    def __init__(self, stream: TextIO, *made: Callable[[str], str]) -> None:
        self.own = stream  # for Stepmark's own colours and progress bars
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
    """Return a console for output that moves the cursor on purpose. The caller must escape all texts."""
    from rich.console import Console

    return Console(file=own_stderr(), markup=False, highlight=False)
