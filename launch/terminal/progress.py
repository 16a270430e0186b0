"""How far something is that takes minutes: a bar on a terminal, else a line now and then. On stderr."""

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
    """Told what is done and how far it is, as often as one likes; `more` says it in words."""

    def __call__(self, doing: str, done: float = 0, total: float = 0, more: str = "", /) -> None: ...


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@functools.cache
def note(text: str) -> None:
    """Once, however many runs a command starts."""
    say(f"note: {text}")


@contextlib.contextmanager
def shown(lead: str = "") -> Iterator[Show]:
    """A bar on a terminal; else a line for each thing that is done, and each ten seconds. All begin with `lead`."""
    if sys.stderr.isatty():
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        words = [TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[more]")]
        columns = (words[0], BarColumn(bar_width=12), words[1], TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console(), transient=True) as progress:
            task = progress.add_task("", total=None, more="")

            def update(doing: str, done: float = 0, total: float = 0, more: str = "") -> None:
                progress.update(
                    task, description=harmless(lead + doing), completed=done, total=total or None, more=harmless(more)
                )

            yield update
        return
    last, printed = "", 0.0

    def line(doing: str, done: float = 0, total: float = 0, more: str = "") -> None:  # noqa: ARG001
        nonlocal last, printed
        if doing != last or time.monotonic() - printed >= LINE_SECONDS:
            last, printed = doing, time.monotonic()
            say(f"{lead}{doing}: {more}" if more else lead + doing)

    yield line


def tracked(items: Iterable[Item], doing: str, total: int) -> Iterator[Item]:
    """The same items; on a terminal, with a bar that vanishes at the end."""
    if not sys.stderr.isatty():
        yield from items
        return
    with shown() as show:
        for done, item in enumerate(items):
            show(doing, done, total, f"{done:,} of {total:,}")
            yield item
