"""The screen of a run: a live line while it trains, with a bar on a terminal, and at most eight lines at its end."""

import shlex
import statistics
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.errors import StepmarkError
from benchmarks.measuring import result_text
from benchmarks.measuring.summary import Result
from benchmarks.model.published_rows import read_references
from benchmarks.references import nearest_reference
from benchmarks.runs.runfolder import RESULT, RUN_ID, RunFolder
from benchmarks.text import Rows, aligned, printable, reasons_text, step_text, title
from benchmarks.values import Step
from launch.terminal.output import harmless, verbose
from launch.terminal.places import configs
from launch.terminal.progress import say, shown

if TYPE_CHECKING:
    from launch.terminal.documents import Runs

RECENT_STEPS = 10


class Screen:
    """Shows the steps of one run while it trains. The steps go to stderr; only the result goes to stdout."""

    def __init__(self, total_steps: int, waiting_for: str) -> None:
        self._total_steps = total_steps
        self._waiting_for = waiting_for
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self._last = -1
        self._shown = shown()

    def __enter__(self) -> "Screen":
        self._show = self._shown.__enter__()
        self._show(self._waiting_for)
        return self

    def __exit__(self, *error: Any) -> None:
        self._shown.__exit__(*error)

    def waiting(self, text: str) -> None:
        """Show the reason why the run waits, if the reason has changed."""
        if text != self._waiting_for:
            self._waiting_for = text
            self._show(text)

    def note(self, text: str) -> None:
        """Print a permanent line above the live line."""
        say(harmless(text))

    def show(self, steps: list[Step]) -> None:
        """Show the latest of the new steps."""
        if steps and steps[0].step <= self._last:  # another attempt has started
            self._recent.clear()
        self._last = steps[-1].step if steps else self._last
        self._recent.extend(step.seconds for step in steps if step.seconds is not None and step.step > 0)
        if steps:
            typical = statistics.median(self._recent) if self._recent else None
            left = (self._total_steps - 1 - steps[-1].step) * typical if typical else None
            text = step_text(steps[-1], self._total_steps, typical, left)
            self._show("", steps[-1].step + 1, self._total_steps, text)


# --- the end of a run ---------------------------------------------------------------------------


def runs_document(folders: Iterable[RunFolder]) -> "Runs":
    """Return the runs in the form that --json prints."""
    from launch.terminal.documents import Run, Runs

    runs = []
    for folder in folders:
        result = folder.stored_result() if (folder.path / RESULT).exists() else None
        status = result.status if result else "not ended"
        runs.append(Run(run_id=folder.run_id, path=str(folder.path), status=status, result=result))
    return Runs(runs=runs)


MOST_LINES = 8


def show_result(folder: RunFolder, result: Result) -> None:
    nearest = nearest_reference.nearest_of_result(result, read_references(configs().root))
    if not verbose():
        print("\n".join(result_lines(folder, result, nearest)), flush=True)
        return
    rows = result_text.result_rows(result)
    if result.status == "failed":
        rows += _diagnosis(folder)
    rows.append(("reference", nearest_reference.text(nearest)))
    rows += [("files", str(folder.path)), ("next", next_command(folder, result))]
    print("\n".join([title(folder.benchmark()), *aligned(rows)]), flush=True)


def result_lines(folder: RunFolder, result: Result, nearest: nearest_reference.Nearest) -> list[str]:
    """Return the screen at the end of a run: at most eight lines."""
    benchmark, failed = folder.benchmark(), result.status == "failed"
    lines = [f"{result.status.upper()}  {title(benchmark)} · site {benchmark.site.name}"]
    rows: Rows = [("Reason", reasons_text(result.reasons))] if result.reasons else []
    if failed:
        rows += [(name.capitalize(), text.partition("\n")[0].removeprefix("- ")) for name, text in _diagnosis(folder)]
    else:
        rows += result_text.short_rows(result, benchmark)
        if nearest[0] is not None and result.status == "valid":
            rows.insert(len(rows) - 1, ("Reference", nearest_reference.line(nearest[0])))
    lines += aligned(rows)
    warnings = [] if failed else result_text.warnings(result)
    room = MOST_LINES - 1 - len(lines)
    if len(warnings) > room:
        warnings = [*warnings[: room - 1], f"{warnings[room - 1]}; {len(warnings) - room} more in result.json"]
    lines += [printable(f"  ! {warning}") for warning in warnings]
    ends = [f"Results  {folder.path}", f"Next  {next_command(folder, result)}"]
    return [*lines, *(ends if failed else ["   ".join(ends)])]


def _diagnosis(folder: RunFolder) -> Rows:
    """Return the first cause of a failure in the run's logs, or a note that the logs are unreadable."""
    from benchmarks.doctor.text import first_rows
    from benchmarks.runs.diagnosing import diagnosis_of_run

    try:
        first = diagnosis_of_run(folder).first
    except (StepmarkError, OSError) as error:
        return [("doctor", f"could not read the logs: {error}")]
    return [] if first is None else first_rows(first)


def next_command(folder: RunFolder, result: Result) -> str:
    """Return the next command: the diagnosis of a failed run, the trace of a profiled run, otherwise verify.py."""
    cancelled = bool(result.attempts) and result.attempts[-1].outcome == "cancelled"
    if result.status == "failed" and not cancelled:
        return f"python launch/doctor.py logs {shlex.quote(str(folder.path))}"
    command = "report.py trace" if result.not_comparable else "verify.py"
    return f"python launch/{command} {_short_name(folder)}"


def _short_name(folder: RunFolder) -> str:
    """Return the shortest arguments that name the run: the end of its name, and --output_dir if needed."""
    parent, name = folder.path.parent, folder.path.name
    if RUN_ID.search(name) and sum(path.name.endswith(name[-4:]) for path in parent.iterdir()) == 1:
        name = name[-4:]
    words = [name] if parent == Path("results") else [f"--output_dir={parent}", name]
    return shlex.join(words)
