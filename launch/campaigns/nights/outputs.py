"""What is shown of a night: its report on the screen, as Markdown, JUnit, HTML and a workflow's summary; a dry run.

None of them changes the exit code, which is the night's.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RequestError, RunError
from benchmarks.gate.junit import junit_xml
from benchmarks.gate.report_text import markdown, screen_text
from benchmarks.gate.rule import G3
from benchmarks.gate.suites import Cell, Watched
from benchmarks.gate.values import NightReport, Suite
from benchmarks.request.resolve import Request
from benchmarks.runs.runfolder import BENCHMARK, write_atomically
from benchmarks.sweeps.scaling import scale_of, scale_text
from benchmarks.text import aligned, plural
from benchmarks.values import Benchmark
from launch.campaigns.nights.night_runs import REPLACED
from launch.terminal.progress import say

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


class Outputs(NamedTuple):
    """What was asked for."""

    junit: str | None = None
    markdown: str | None = None
    html: str | None = None

    def check(self) -> None:
        """Before hours of runs: can these files be written?"""
        for flag, place in self._asdict().items():
            if place is None:
                continue
            path = Path(place)
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
            in_a_run = any((folder / BENCHMARK).is_file() for folder in path.resolve().parents)
            if not place or path.is_dir() or in_a_run or not os.access(path.parent, os.W_OK):
                raise RequestError(f"'{place}' cannot be written", where=f"--{flag}={place}")

    def remove_old(self) -> None:
        """Of the night before: where this one comes to no end, nobody shall take that for its result."""
        for place in (self.junit, self.markdown, self.html):
            if place is not None and Path(place).is_file():
                with contextlib.suppress(OSError):  # what cannot be removed is said when it cannot be written
                    Path(place).unlink()


def show(report: NightReport, outputs: Outputs, record: Path | None) -> None:
    print("\n" + screen_text(report), flush=True)
    if record is not None:
        print(f"\nfiles: {record}\n       {record.with_suffix('.md')}", flush=True)
    for place, text in ((outputs.junit, junit_xml), (outputs.markdown, markdown), (outputs.html, _html)):
        if place is not None:
            _write(Path(place), text(report))
    add_to_summary(markdown(report))


def _html(report: NightReport) -> str:
    from benchmarks.pages.night import night_part
    from benchmarks.pages.page import page

    return page(night_part(report))


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
        print(f"       {path}", flush=True)
    except RunError as error:
        say(f"stepmark: {error}")


# --- a dry run ----------------------------------------------------------------------------------


def plan_text(
    suite: Suite,
    cells: Sequence[Cell],
    watched: Sequence[Watched],
    understand: Callable[[Request], Benchmark],
    site: str,
    budget: int,
) -> str:
    """The cells, what they mean, and what a night costs in runs.

    RequestError where a cell cannot work: the night itself would run the others.
    """
    rows = [(cell.name, _meaning(cell, cell.request, understand)) for cell in cells]
    gated = ", ".join(one.metric.title for one in watched if one.gates)
    beside = ", ".join(one.metric.title for one in watched if not one.gates) or "nothing else"
    return "\n".join(
        [
            f"suite {suite.name} at site {site}: {suite.title}",
            *aligned(rows),
            "",
            _cost(len(cells), budget),
            *_control_cost(cells, understand),
            f"gates {gated}; watches {beside}",
            "nothing was started (--dry_run)",
        ]
    )


def _cost(cells: int, budget: int) -> str:
    if not budget:
        return f"{plural(cells, 'run')} a night, one per cell; no re-runs are allowed, so nothing can be confirmed"
    most = cells + min(budget, cells * G3.confirmations * (1 + REPLACED))
    return (
        f"{plural(cells, 'run')} a night, one per cell, and {G3.confirmations} re-runs of each suspect cell: "
        f"{most} runs at most"
    )


def _control_cost(cells: Sequence[Cell], understand: Callable[[Request], Benchmark]) -> list[str]:
    """RequestError where the control of a cell cannot work."""
    found = [_meaning(cell, cell.control, understand) for cell in cells if cell.control is not None]
    each = f"the control after each, on the same nodes: twice as many runs in all; each {found[0]}" if found else ""
    return [each] if found else []


def _meaning(cell: Cell, request: Request, understand: Callable[[Request], Benchmark]) -> str:
    try:
        benchmark = understand(request)
    except RequestError as error:
        who = f"cell {cell.name}" if request is cell.request else f"the control of cell {cell.name}"
        what = f"{who} cannot work: {error.what}"
        raise RequestError(what, where=error.where, why=error.why, next_command=error.next_command) from None
    work = f"{benchmark.dtype}, {benchmark.steps} steps, window {benchmark.window}"
    return f"{scale_text(scale_of(benchmark))}, {work}"


def add_to_summary(markdown: str) -> None:
    """Add to the summary that GitHub shows of a workflow's job.

    Does nothing outside a workflow; a file that can't be written is no reason to fail.
    """
    place = os.environ.get(SUMMARY_VARIABLE)
    if not place:
        return
    try:
        with Path(place).open("a", encoding="utf-8") as stream:
            stream.write(markdown + "\n")
    except OSError as error:
        say(f"stepmark: {SUMMARY_VARIABLE}: {error.strerror}: {place}")
