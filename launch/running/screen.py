"""What the user sees while a run trains: a bar and one live line on a terminal, otherwise a plain line at times."""

import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.text import duration_text, step_text
from benchmarks.values import Step
from launch.terminal.output import console, harmless

if TYPE_CHECKING:
    from rich.live import Live

PLAIN_LINE_SECONDS = 10.0
RECENT_STEPS = 10
BAR_WIDTH = 12  # with the time left it fits into 80 columns


class Screen:
    """Shows the steps of one run as they come. Everything goes to stderr; stdout keeps the result."""

    def __init__(self, total_steps: int, waiting_for: str) -> None:
        self._total_steps = total_steps
        self._waiting_for = waiting_for
        self._started = time.monotonic()
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self._last: Step | None = None
        self._printed: Step | None = None
        self._last_plain = 0.0
        self._live: Live | None = None

    def __enter__(self) -> "Screen":
        if sys.stderr.isatty():
            self._live = _live_line(self._text, self._done)
            self._live.start()
        else:
            print(self._waiting_for, file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._last is not None and self._last is not self._printed:
            self._print_plain()

    def waiting(self, text: str) -> None:
        """What the run waits for now; said again only when it changes."""
        if text != self._waiting_for:
            self._waiting_for = text
            self._last = None
            if self._live is None:
                print(text, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """A line that stays, above the live one."""
        if self._live is not None:
            self._live.console.print(harmless(text))
        else:
            print(text, file=sys.stderr, flush=True)

    def show(self, steps: list[Step]) -> None:
        """Take in what was just read; rank 0 speaks for the run."""
        for step in steps:
            if step.rank == 0:
                self._last = step
                if step.seconds is not None and step.step > 0:
                    self._recent.append(step.seconds)
        due = time.monotonic() - self._last_plain >= PLAIN_LINE_SECONDS
        if self._live is None and self._last is not None and due:
            self._print_plain()

    def _print_plain(self) -> None:
        print(self._text(), file=sys.stderr, flush=True)
        self._printed, self._last_plain = self._last, time.monotonic()

    def _done(self) -> float | None:
        """The share of the steps; unknown before the first."""
        if self._last is None:
            return None
        return (self._last.step + 1) / self._total_steps

    def _text(self) -> str:
        if self._last is None:
            return f"{self._waiting_for} ({duration_text(time.monotonic() - self._started)})"
        typical = statistics.median(self._recent) if self._recent else None
        left = (self._total_steps - 1 - self._last.step) * typical if typical else None
        return step_text(self._last, self._total_steps, typical, left)


def _live_line(text: Callable[[], str], done: Callable[[], float | None]) -> "Live":
    """The newest text behind a bar, or a spinner while nothing counts; rich asks for it some times a second."""
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    spinner = Spinner("dots")

    def line() -> Spinner | Table:
        share = done()
        if share is None:
            spinner.update(text=Text(harmless(text())))
            return spinner
        row = Table.grid(padding=(0, 1))
        row.add_row(ProgressBar(total=1.0, completed=share, width=BAR_WIDTH), Text(harmless(text()), no_wrap=True))
        return row

    return Live(get_renderable=line, console=console(), refresh_per_second=4)
