"""What a command answers: text for a person or, with --json, one JSON document for a program.

With --json, stdout holds the document alone; whatever else is printed goes to stderr.
"""

import sys
from collections.abc import Callable
from typing import TextIO

_kept: list[TextIO] = []  # standard output, from --json until its document is printed


def keep_for_json() -> None:
    _kept[:] = [sys.stdout]
    sys.stdout = sys.stderr


def wanted() -> bool:
    """Whether a document is still to be printed."""
    return bool(_kept)


def answer(data: object, text: str | Callable[[], str]) -> None:
    """The answer of a command. Data or a text that takes long is made, by a function, only where it is shown."""
    if wanted():
        document(data() if callable(data) else data)
    else:
        shown = text if isinstance(text, str) else text()
        print(shown, end="" if shown.endswith("\n") else "\n", flush=True)


def text_alone(text: str) -> None:
    """The answer of a command that is text by its nature, such as a job script or --help."""
    answer({"text": text}, text)


def document(data: object) -> None:
    """The document, with --json; by itself, where a command prints its text bit by bit."""
    if wanted():
        from benchmarks.values import json_text

        print(json_text(data), end="", file=_kept.pop(), flush=True)
