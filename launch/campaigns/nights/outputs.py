"""Write the report of a night as text, Markdown, JUnit XML, HTML and a workflow's summary, and the text of a dry run.

If a file cannot be written, the exit code of the night does not change.
"""

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RequestError, RunError
from benchmarks.nightly.junit import junit_xml
from benchmarks.nightly.report_text import markdown, screen_text
from benchmarks.nightly.rule import CONFIRMATIONS
from benchmarks.nightly.suites import Cell, WatchedMetric
from benchmarks.nightly.values import NightReport, Suite
from benchmarks.runs.runfolder import BENCHMARK, write_atomically
from benchmarks.sweeps.scaling import scale_of, scale_text
from benchmarks.text import aligned, plural
from benchmarks.values import Benchmark
from launch.terminal.progress import say

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


class Outputs(NamedTuple):
    """The requested outputs."""

    junit: str | None = None
    markdown: str | None = None
    html: str | None = None

    def check(self) -> None:
        """Refuse files that cannot be written, before the runs begin."""
        for flag, place in self._asdict().items():
            if place is None:
                continue
            path = Path(place)
            if place and not path.parent.is_dir():
                command = f"mkdir -p {shlex.quote(str(path.parent))}"
                what = f"the folder of '{place}' does not exist"
                raise RequestError(what, where=f"--{flag}={place}", next_command=command)
            in_a_run = any((folder / BENCHMARK).is_file() for folder in path.resolve().parents)
            if not place or path.is_dir() or in_a_run or not os.access(path.parent, os.W_OK):
                raise RequestError(f"'{place}' cannot be written", where=f"--{flag}={place}")

    def remove_old(self) -> None:
        """Remove the outputs of the previous night, so that no reader mistakes them for this night's."""
        for place in (self.junit, self.markdown, self.html):
            if place is not None and Path(place).is_file():
                with contextlib.suppress(OSError):  # `show` reports the reason when it writes the file
                    Path(place).unlink()


def show(report: NightReport, outputs: Outputs, record: Path) -> None:
    print("\n" + screen_text(report), flush=True)
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
    watched: Sequence[WatchedMetric],
    benchmarks: Mapping[str, Benchmark],
    site: str,
    budget: int,
) -> str:
    """Return the text of a dry run: the cells, the metrics, and the number of runs per night."""
    rows = [
        (name, f"{scale_text(scale_of(one))}, {one.dtype}, {one.steps} steps, window {one.window}")
        for name, one in benchmarks.items()
    ]
    gated = ", ".join(one.metric.title for one in watched if one.gates)
    further = ", ".join(one.metric.title for one in watched if not one.gates) or "none"
    return "\n".join(
        [
            f"suite {suite.name} at site {site}: {suite.title}",
            *aligned(rows),
            "",
            f"{plural(len(cells), 'run')} per night; {CONFIRMATIONS} re-runs per suspect cell, {budget} at most",
            *[f"the control is {cell.name}" for cell in cells if cell.is_control],
            f"metrics with a gate: {gated}; other metrics: {further}",
            *([f"the night must detect a change of {suite.must_detect:g}%"] if suite.must_detect else []),
            "nothing was started (--dry_run)",
        ]
    )


def add_to_summary(markdown: str) -> None:
    """Add text to the summary that GitHub shows for a workflow's job.

    Do nothing outside of a workflow. If the file cannot be written, only print a message.
    """
    place = os.environ.get(SUMMARY_VARIABLE)
    if not place:
        return
    try:
        with Path(place).open("a", encoding="utf-8") as stream:
            stream.write(markdown + "\n")
    except OSError as error:
        say(f"stepmark: {SUMMARY_VARIABLE}: {error.strerror}: {place}")
