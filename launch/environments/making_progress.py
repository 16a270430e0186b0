"""What a person sees while an environment is made: a bar on a terminal, lines in a log file."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

Say = Callable[[str], None]


class Progress(Protocol):
    """Told what is going on and how many packages are done; told the same twice, it stays silent."""

    def __call__(self, phase: str, done: int = 0, total: int | None = None) -> None: ...


@contextlib.contextmanager
def shown_progress(name: str, say: Say, bar: bool) -> Iterator[Progress]:
    """Progress in the making of the environment `name`."""
    if not bar:
        yield _Lines(name, say)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TextColumn("packages"), TimeElapsedColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as rich_progress:
        task = rich_progress.add_task(name, total=None)

        def update(phase: str, done: int = 0, total: int | None = None) -> None:
            rich_progress.update(task, description=f"{name}: {phase}", completed=done, total=total)

        yield update


@dataclass
class _Lines:
    """A line for each phase and for each further tenth of its packages."""

    name: str
    say: Say
    phase: str = ""
    tenth: int = 0
    started: float = field(default_factory=time.monotonic)

    def __call__(self, phase: str, done: int = 0, total: int | None = None) -> None:
        if phase != self.phase:
            self.phase, self.tenth = phase, 0
            self._line(f"{phase} {total} packages" if total else phase)
        tenth = 10 * done // total if total else 0
        if tenth > self.tenth:
            self.tenth = tenth
            self._line(f"{phase}: package {done} of {total}")

    def _line(self, text: str) -> None:
        self.say(f"environment '{self.name}': {text} ({time.monotonic() - self.started:.0f} s)")
