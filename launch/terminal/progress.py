"""The progress of work that takes minutes, on stderr: a bar on a terminal, otherwise occasional lines."""

import contextlib
import functools
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from launch.terminal.output import console, harmless

LINE_SECONDS = 10.0
Item = TypeVar("Item")


class Show(Protocol):
    """A function that shows the work and its progress. It may be called often. `more` is additional text."""

    def __call__(self, doing: str, done: float = 0, total: float = 0, more: str = "", /) -> None: ...


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@functools.cache
def note(text: str, lead: str = "note: ") -> None:
    """Print a note. The same note appears only once, even if a command starts many runs."""
    say(lead + text)


@contextlib.contextmanager
def shown(lead: str = "") -> Iterator[Show]:
    """Show a bar on a terminal. Otherwise print a line for each new `doing`, every ten seconds, and at the end."""
    if sys.stderr.isatty():
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        words = [
            TextColumn(f"{{task.{field}}}", markup=False, table_column=Column(no_wrap=True))
            for field in ("description", "fields[more]")
        ]
        columns = (words[0], BarColumn(bar_width=12), words[1], TimeElapsedColumn())
        with Progress(*columns, console=console(), transient=True) as progress:
            task = progress.add_task("", total=None, more="")

            def update(doing: str, done: float = 0, total: float = 0, more: str = "") -> None:
                progress.update(
                    task, description=harmless(lead + doing), completed=done, total=total or None, more=harmless(more)
                )

            yield update
        return
    last, printed, pending = "", 0.0, ""

    def line(doing: str, done: float = 0, total: float = 0, more: str = "") -> None:  # noqa: ARG001
        nonlocal last, printed, pending
        pending = lead + ": ".join(filter(None, (doing, more)))
        if doing != last or time.monotonic() - printed >= LINE_SECONDS:
            say(pending)
            last, printed, pending = doing, time.monotonic(), ""

    try:
        yield line
    finally:
        if pending:
            say(pending)


def tracked(items: Iterable[Item], doing: str, total: int) -> Iterator[Item]:
    """Yield the items. On a terminal, show a bar until the last item."""
    if not sys.stderr.isatty():
        yield from items
        return
    with shown() as show:
        for done, item in enumerate(items):
            show(doing, done, total, f"{done:,} of {total:,}")
            yield item
