"""What the user sees of a run: a live line while it trains, on a terminal with a bar; and the table at its end."""

import shlex
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from benchmarks.errors import StepmarkError
from benchmarks.measuring import result_text
from benchmarks.measuring.summary import Result
from benchmarks.model.published_rows import read_references
from benchmarks.references import nearest_reference
from benchmarks.runs.runfolder import RESULT, RunFolder
from benchmarks.text import Rows, aligned, duration_text, step_text, title
from benchmarks.values import Step
from launch.terminal.output import console, harmless
from launch.terminal.places import configs

if TYPE_CHECKING:
    from rich.live import Live

    from launch.terminal.documents import Runs

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


# --- the end of a run ---------------------------------------------------------------------------


def runs_document(folders: Iterable[RunFolder]) -> "Runs":
    """Return runs as --json prints them."""
    from launch.terminal.documents import Run, Runs

    runs = []
    for folder in folders:
        result = folder.stored_result() if (folder.path / RESULT).exists() else None
        status = result.status if result else "not ended"
        runs.append(Run(run_id=folder.run_id, path=str(folder.path), status=status, result=result))
    return Runs(runs=runs)


def show_result(folder: RunFolder, result: Result) -> None:
    rows = result_text.result_rows(result)
    if result.status == "failed":
        rows += _diagnosis(folder)
    nearest = nearest_reference.nearest_of_result(result, read_references(configs().root))
    rows.append(("reference", nearest_reference.text(nearest)))
    rows.append(("files", str(folder.path)))
    rows.append(("next", next_command(folder, result)))
    print("\n".join([title(folder.benchmark()), *aligned(rows)]), flush=True)


def _diagnosis(folder: RunFolder) -> Rows:
    """What its logs say of the first cause. A log that can't be read hides no result."""
    from benchmarks.doctor.text import first_rows
    from benchmarks.runs.diagnosing import diagnosis_of_run

    try:
        first = diagnosis_of_run(folder).first
    except (StepmarkError, OSError) as error:
        return [("doctor", f"could not read the logs: {error}")]
    return [] if first is None else first_rows(first)


def next_command(folder: RunFolder, result: Result) -> str:
    place, parent = shlex.quote(str(folder.path)), shlex.quote(str(folder.path.parent))
    if result.status == "failed":
        last = result.attempts[-1] if result.attempts else None
        log = f"attempt-{last.attempt}/*/rank-{last.rank or 0}.log" if last else ""
        return (
            f"tail -n 40 {place}/{log}"
            if log and any(folder.path.glob(log))
            else f"python launch/doctor.py logs {place}"
        )
    trace = f"python launch/report.py trace {place}\n" if result.not_comparable else ""
    return f"{trace}python launch/verify.py {place}\npython launch/dashboard.py --output_dir={parent} --serve"
