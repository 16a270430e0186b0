"""What a command answers: text for a person or, with --json, one JSON document for a program.

With --json, stdout holds the document alone; whatever else is printed goes to stderr.
"""

import sys
from collections.abc import Callable
from typing import TextIO

from absl import flags

_kept: list[TextIO] = []  # standard output, while --json keeps it for the document


def keep_for_json() -> None:
    _kept[:] = [sys.stdout]
    sys.stdout = sys.stderr


def wanted() -> bool:
    return flags.FLAGS.is_parsed() and bool(flags.FLAGS.json)


def answer(data: object, text: str | Callable[[], str]) -> None:
    """The answer of a command. A text that takes long is made only where it is shown."""
    if wanted():
        document(data)
    else:
        shown = text if isinstance(text, str) else text()
        print(shown, end="" if shown.endswith("\n") else "\n", flush=True)


def text_alone(text: str) -> None:
    """The answer of a command that is text by its nature, such as a job script."""
    answer({"text": text}, text)


def as_json_too(data: object) -> None:
    """The answer of a command that has printed its text bit by bit, which --json has sent to stderr."""
    if wanted():
        document(data)


def document(data: object) -> None:
    from benchmarks.values import json_text

    print(json_text(data), end="", file=_kept.pop() if _kept else sys.stdout, flush=True)


def document_if_none(data: Callable[[], object]) -> None:
    """Where --json was given and nothing is answered yet."""
    if _kept:
        document(data())
