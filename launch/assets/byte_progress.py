"""How far the reading or writing of many bytes is: a bar on a terminal, a line now and then without one."""

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.rendering.report import duration_text

LINE_SECONDS = 10.0


class Show(Protocol):
    """Told what is done and how far it is; often, for it decides itself what a person sees of it."""

    def __call__(self, doing: str, done: int, total: int | None = None, more: str = "") -> None: ...


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def shown_bytes() -> Iterator[Show]:
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[far]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, far="")
        pace = Pace()

        def show(doing: str, done: int, total: int | None = None, more: str = "") -> None:
            far = pace.text(doing, done, total, more)
            bar.update(task, description=doing, completed=done, total=total, far=far)

        yield show


@dataclass
class Pace:
    """The rate and the time left of what is being done, counted from where it began this time."""

    doing: str = ""
    first: int = 0
    started: float = 0.0

    def text(self, doing: str, done: int, total: int | None, more: str) -> str:
        now = time.monotonic()
        if doing != self.doing or done < self.first:
            self.doing, self.first, self.started = doing, done, now
        seconds = now - self.started
        rate = (done - self.first) / seconds if seconds > 0.2 else 0.0
        words = [size_text(done) if total is None else f"{size_text(done)} of {size_text(total)}"]
        if rate > 0:
            words.append(f"{size_text(rate)}/s")
            if total is not None and total > done:
                words.append(f"{duration_text((total - done) / rate)} left")
        return ", ".join([*words, more] if more else words)


@dataclass
class Lines:
    """A line when something else is done, and each ten seconds."""

    pace: Pace = field(default_factory=Pace)
    printed: float = 0.0

    def __call__(self, doing: str, done: int, total: int | None = None, more: str = "") -> None:
        changed = doing != self.pace.doing
        text = self.pace.text(doing, done, total, more)
        if changed or time.monotonic() - self.printed >= LINE_SECONDS:
            self.printed = time.monotonic()
            say(f"{doing}: {text}")


def size_text(size: float) -> str:
    """Bytes in the decimal units that disks are sold in."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}" if size / factor < 1000 else f"{size / factor:,.0f} {unit}"
    return f"{size:.0f} bytes"
