"""A rehearsal: one real run of a suite's cell, from its newest night or made now, and the canned history around it.

A run made for a rehearsal lies in a temporary folder, which is removed.
"""

import contextlib
import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RequestError, RunError
from benchmarks.nightly import rehearsal
from benchmarks.nightly.records import Records
from benchmarks.nightly.suites import Cell, watched
from benchmarks.nightly.values import Suite
from benchmarks.request.resolve import command_of
from benchmarks.runs.campaign_record import result_of
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.runfolder import new_run_id
from benchmarks.text import reasons_text
from benchmarks.values import Site
from launch.machine.processes import interrupted_once
from launch.running.runners import Runner
from launch.terminal.progress import say

ON_A_CPU = (
    "python launch/nightly.py --suite=smoke --rehearse     (on this machine), or the same after the first night"
)


class _Real(NamedTuple):
    cell: Cell
    run: FinishedRun
    whence: str


def rehearse(
    suite: Suite, cells: Sequence[Cell], site: Site, output_dir: Path, runner_in: Callable[[Path], Runner]
) -> tuple[list[rehearsal.Played], str]:
    """Return the nights and the text about them. `runner_in` returns what runs a cell in a folder."""
    times = rehearsal.gated_times(watched(suite), suite.name)
    real = _of_newest_night(suite, cells, output_dir) or _made_now(suite, cells, site, runner_in)
    played = rehearsal.play(real.run, suite.name, real.cell, times)
    return played, rehearsal.rehearsal_text(suite.name, real.run, real.whence, played)


def _of_newest_night(suite: Suite, cells: Sequence[Cell], output_dir: Path) -> _Real | None:
    by_name = {cell.name: cell for cell in cells}
    reports, _ = Records(output_dir, suite.name).read_newest()
    for report in reversed(reports):
        for one in report.cells:
            run = result_of(output_dir / one.run_id) if one.run_id and one.cell in by_name else None
            if run and _can_be_scaled(run):
                return _Real(by_name[one.cell], run, f"(night {report.night})")
    return None


def _can_be_scaled(run: FinishedRun) -> bool:
    comparable = run.status == "valid" and not run.not_comparable and not run.slowed_by
    return comparable and run.metrics.seconds_per_step is not None


def _made_now(suite: Suite, cells: Sequence[Cell], site: Site, runner_in: Callable[[Path], Runner]) -> _Real:
    cell = cells[0]
    if site.slurm is not None:
        raise RequestError(
            f"suite {suite.name} has no night yet, so no run of site {site.name} to rehearse with",
            where=f"--site={site.name}",
            why="a rehearsal submits no job",
            next_command=ON_A_CPU,
        )
    with tempfile.TemporaryDirectory(prefix="stepmark-rehearsal-") as folder:
        runner = runner_in(Path(folder))
        try:
            benchmark = runner.resolve(cell.request)
        except RequestError as error:
            raise RequestError(error.what, where=error.where, why=error.why, next_command=ON_A_CPU) from None
        run_id = new_run_id(benchmark)
        say(f"{cell.name}: one real run, in a temporary folder")
        with interrupted_once(), contextlib.redirect_stdout(io.StringIO()):
            runner.start(benchmark, run_id)
        run = result_of(Path(folder) / run_id)
    if run is None or not _can_be_scaled(run):
        reasons = [*run.reasons, *run.not_comparable] if run else []
        raise RunError(
            f"the run of {cell.name} cannot be rehearsed with: {reasons_text(reasons) or 'it left no result'}",
            next_command=command_of(cell.request, "run.py"),
        )
    return _Real(cell, run, "(made just now)")
