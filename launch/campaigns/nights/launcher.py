"""Run a night: run and judge every cell, run suspect cells again within the budget, judge them again, and record all.

If a launcher is killed, the next launcher resumes the night from its record. It waits for the runs that a queue had
accepted, and repeats the other unfinished runs.
"""

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from benchmarks.backend import find_backend
from benchmarks.errors import EXIT_INTERRUPTED, RequestError, StepmarkError
from benchmarks.job_record import figures_from
from benchmarks.nightly.judging import Judge, new_report, not_run, report_of
from benchmarks.nightly.night import MISSING, RUNNING, Urgency, grant
from benchmarks.nightly.records import Records, now
from benchmarks.nightly.rule import CONFIRMATIONS
from benchmarks.nightly.suites import Cell
from benchmarks.nightly.values import Budget, NightReport, Suite
from benchmarks.request.resolve import Request
from benchmarks.runs.campaign_record import end_text, result_of
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Benchmark, Labels, Nightly, Site
from launch.campaigns.scheduler import FAILED_STARTS, Scheduler, Work, exclusive_lock
from launch.machine.processes import interrupted_once
from launch.terminal.progress import say
from launch.terminal.run_index import open_index

REPLACED = 2  # how often failed re-runs are replaced within the budget
Runners = Callable[[Labels, Mapping[str, Any]], Any]  # returns the site's Runner for these labels and job options


class RunOf(NamedTuple):
    """The identity of a run in a night."""

    cell: str
    rerun: int = 0  # 0: the first run; re-runs count from 1


class NightRequest(NamedTuple):
    """The request for a night, from the flags."""

    suite: Suite
    cells: list[Cell]
    site: Site
    output_dir: Path
    slowdown: float
    budget: int
    resume: bool
    typed: Mapping[str, Any]  # the job flags that the user passed
    command: list[str]
    begins: Callable[[], None] = lambda: None  # called after the last check that may refuse the night

    @property
    def max_jobs(self) -> int:
        return self.site.slurm.max_jobs if self.site.slurm else 1


class Launcher:
    """One launcher's work on a night."""

    def __init__(
        self, asked: NightRequest, runners: Runners, records: Records, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._asked, self._runners, self._records, self._sleep = asked, runners, records, sleep
        self._benchmarks: dict[str, Benchmark] = {}
        self._runs = {cell.name: not_run(cell) for cell in asked.cells}
        self._refused: list[str] = []  # suspect cells whose re-runs would exceed the budget
        self._frame = new_report(asked.suite, "", now(), asked.site.name, asked.slowdown)
        self._scheduler = self._new_scheduler()

    def run(self) -> tuple[int, NightReport | None]:
        """Run the night. Return the exit code, and the report unless the night was interrupted."""
        refused = self._resolve()
        with exclusive_lock(self._records.folder / ".lock", "suite"):
            self._take_up()
            for name, error in refused.items():
                reason = f"refused: {error.what}" + (f" ({error.why})" if error.why else "")
                self._change(name, status=MISSING, reasons=[reason])
                say(f"{name}: {reason}")
            self._keep()
            self._asked.begins()
            with interrupted_once():
                try:
                    return self._run()
                except KeyboardInterrupt:
                    say("interrupted")  # the runs so far are collected when the night resumes
                    self._say_how_to_resume()
                    return EXIT_INTERRUPTED, None
                except (StepmarkError, OSError):
                    self._say_how_to_resume()
                    raise

    def _run(self) -> tuple[int, NightReport]:
        self._first_runs()
        of = self._asked
        judge = Judge(self._frame, of.suite, of.cells, self._records, open_index(of.output_dir))
        self._reruns(judge.judge(self._runs, final=False)[1])
        report = judge.report(self._runs, self._budget(), now())
        self._records.write(report)
        return report.exit_code, report

    # --- the beginning ---

    def _take_up(self) -> None:
        """Resume a night that another launcher left unfinished, or begin a new night."""
        asked = self._asked
        left = self._records.unfinished(asked.site.name, asked.slowdown) if asked.resume else None
        changed = left and {cell.cell for cell in left.cells} != {cell.name for cell in asked.cells}
        if left is not None and changed:
            say(f"suite {asked.suite.name}: night {left.night} is not resumed, because the suite has changed")
        if left is None or changed:
            self._frame = replace(self._frame, night=self._records.new_night())
            say(f"suite {asked.suite.name}, night {self._frame.night}: {len(asked.cells)} cells")
            return
        self._frame = replace(self._frame, night=left.night, started=left.started)
        self._runs |= {cell.cell: cell for cell in left.cells if cell.cell in self._runs}
        say(f"suite {asked.suite.name}: resuming night {left.night} (--noresume starts another)")

    def _resolve(self) -> dict[str, RequestError]:
        """Resolve the cells. Return refused cell -> error. If all cells are refused, raise the first error."""
        errors: dict[str, RequestError] = {}
        runner = self._runners(Labels(), {})
        for cell in self._asked.cells:
            try:
                self._benchmarks[cell.name] = runner.resolve(cell.request)
            except RequestError as error:
                errors[cell.name] = error
        if errors and not self._benchmarks:
            raise next(iter(errors.values()))
        return errors

    # --- the runs ---

    def _first_runs(self) -> None:
        self._scheduler = self._new_scheduler()
        begun = [name for name, runs in self._runs.items() if runs.status == RUNNING and name in self._benchmarks]
        self._scheduler.follow(self._work(name, self._runs[name].run_id) for name in begun)
        for name in begun:
            runs = self._runs[name]
            if runs.status not in (RUNNING, "valid") and not _was_submitted(self._folder(runs.run_id)):
                self._note(name, f"{runs.run_id} ended because its launcher was killed, and was repeated")
                self._change(name, run_id=None, status=MISSING, reasons=[])
        self._run_all([self._work(name) for name in self._benchmarks if self._runs[name].status == MISSING])

    def _run_all(self, wanted: list[Work]) -> bool:
        """Run the work and wait until every run has ended. Return whether every run was started."""
        left_out = self._scheduler.run(wanted)
        for work in left_out:
            self._ended(work, f"not started, because {FAILED_STARTS} starts in a row failed")
        return not left_out

    def _reruns(self, suspicions: Mapping[str, Urgency]) -> None:
        """Run suspect cells again, and complete the re-runs of a resumed night."""
        wanting = {name: how for name, how in suspicions.items() if not self._runs[name].rerun_ids}
        begun = [name for name, runs in self._runs.items() if runs.rerun_ids and name in self._benchmarks]
        self._scheduler = self._new_scheduler()
        owed = sum(len(self._rerun_work(name, CONFIRMATIONS)[1]) for name in begun)
        granted, self._refused = grant(wanting, CONFIRMATIONS, self._left() - owed)
        used = self._budget().used + owed
        for name in self._refused:
            say(f"{name}: suspect, but not run again: {used} of the night's {self._asked.budget} re-runs are used")
        for name in granted:
            say(f"{name}: suspect, starting {CONFIRMATIONS} re-runs")
        for _ in range(1 + REPLACED):
            going: list[Work] = []
            wanted: list[Work] = []
            for name in [*begun, *granted]:
                ours, missing = self._rerun_work(name, self._left() - len(wanted))
                going += ours
                wanted += missing
            # Alternate between cells, so that a slow period of the machine affects all cells.
            wanted.sort(key=lambda work: work.key.rerun)
            self._scheduler.follow(going)
            if not (going or wanted) or not self._run_all(wanted):
                break
        for name in [*begun, *granted]:
            self._note_nodes(name)

    def _rerun_work(self, name: str, most: int) -> tuple[list[Work], list[Work]]:
        """Return the running re-runs of a cell, and the re-runs to start within the budget."""
        known, benchmark = self._runs[name].rerun_ids, self._benchmarks[name]
        nodes = _nodes_of(self._folder(self._runs[name].run_id))
        exclude = _excluding(benchmark, nodes, self._asked.typed, self._asked.output_dir)
        runner = self._runner(name, "rerun", exclude)
        ended = runner.ended(known) if known else set()
        valid = sum(run_id in ended and self._is_valid(run_id) for run_id in known)
        missing = max(min(CONFIRMATIONS - valid - (len(known) - len(ended)), most), 0)
        request = self._request_of(name)
        works = [
            Work(RunOf(name, number), f"{name}, re-run {number}", runner, benchmark, request, run_id)
            for number, run_id in enumerate([*known, *[""] * missing], start=1)
        ]
        return [work for work in works if work.run_id and work.run_id not in ended], works[len(known) :]

    def _left(self) -> int:
        return self._asked.budget - self._budget().used

    def _work(self, name: str, run_id: str | None = None) -> Work:
        runner, request = self._runner(name, "night"), self._request_of(name)
        return Work(RunOf(name), name, runner, self._benchmarks[name], request, run_id or "")

    def _request_of(self, name: str) -> Request:
        return next(cell.request for cell in self._asked.cells if cell.name == name)

    def _runner(self, name: str, role: Any, options: Mapping[str, Any] | None = None) -> Any:
        nightly = Nightly(suite=self._asked.suite.name, cell=name, night=self._frame.night, role=role)
        return self._runners(Labels(nightly=nightly), {**self._asked.typed, **(options or {})})

    def _new_scheduler(self) -> Scheduler:
        """Return a quiet scheduler: each run prints one line, and the night prints a table at its end."""
        asked = self._asked
        return Scheduler(asked.output_dir, asked.max_jobs, self._started, self._ended, self._sleep, quiet=True)

    # --- the record of the night ---

    def _started(self, work: Work) -> None:
        name, rerun = work.key
        if rerun:
            self._change(name, rerun_ids=[*self._runs[name].rerun_ids, work.run_id])
        else:
            self._change(name, run_id=work.run_id, status=RUNNING, reasons=[])
        self._keep()

    def _ended(self, work: Work, trouble: str | None) -> None:
        name, rerun = work.key
        result = self._result(work.run_id)
        if trouble and work.run_id:
            trouble = f"could not be started: {trouble}"
        if rerun and trouble:
            self._note(name, f"re-run {work.run_id or rerun} {trouble}")
        elif not rerun:
            why = result.reasons if result else [trouble or "it ended without a result"]
            self._change(name, status=result.status if result else "failed", reasons=why)
        say(f"{work.label}: {f'{work.run_id} {trouble or end_text(result)}'.strip()}")
        self._keep()

    def _result(self, run_id: str) -> FinishedRun | None:
        return result_of(self._asked.output_dir / run_id)

    def _is_valid(self, run_id: str) -> bool:
        result = self._result(run_id)
        return result is not None and result.status == "valid"

    def _folder(self, run_id: str | None) -> RunFolder:
        return RunFolder(self._asked.output_dir / (run_id or ""))

    def _note_nodes(self, name: str) -> None:
        runs = self._runs[name]
        first = {*_nodes_of(self._folder(runs.run_id))}
        again = {node for run_id in runs.rerun_ids for node in _nodes_of(self._folder(run_id))}
        if first and again:
            common = len(first & again) or "none"
            self._note(name, f"first run: {len(first)} nodes; re-runs: {len(again)} nodes; nodes of both: {common}")

    def _note(self, name: str, note: str) -> None:
        """Add a note to a cell. A resumed night may already have the note."""
        self._change(name, notes=[*dict.fromkeys([*self._runs[name].notes, note])])

    def _change(self, name: str, **what: Any) -> None:
        self._runs[name] = replace(self._runs[name], **what)

    def _budget(self) -> Budget:
        used = sum(len(runs.rerun_ids) for runs in self._runs.values())
        return Budget(allowed=self._asked.budget, used=used, refused=list(self._refused))

    def _keep(self) -> None:
        self._records.write(report_of(self._frame, list(self._runs.values()), self._budget(), None))

    def _say_how_to_resume(self) -> None:
        if self._scheduler.going and self._asked.site.slurm is not None:
            say(f"still in the queue: {', '.join(self._scheduler.going)}")
        say(f"  to resume it:  {shlex.join(self._asked.command)}")


# --- facts from run folders ---


def _was_submitted(folder: RunFolder) -> bool:
    """Return whether a queue has accepted the run. Such a run continues if its launcher is killed."""
    with contextlib.suppress(StepmarkError, OSError):
        return folder.is_queued() and bool(folder.job_ids())
    return False


# --- nodes: re-runs use other nodes than the first run, if the cluster has enough ---


def _nodes_of(folder: RunFolder) -> list[str]:
    """Return the nodes of the attempt that was measured; empty if the run had no job or its job never started."""
    from launch.slurm.options import parse_node_list

    with contextlib.suppress(StepmarkError, OSError):
        attempts = folder.stored_result().attempts
        return parse_node_list(figures_from(attempts).nodes) if attempts else []
    return []


def _excluding(benchmark: Benchmark, nodes: list[str], typed: Mapping[str, Any], output_dir: Path) -> dict[str, str]:
    """Return the job option that excludes these nodes; empty if the job would then wait or never run."""
    from launch.slurm import options

    if benchmark.site.slurm is None or not nodes:
        return {}
    given = options.choose(benchmark.site, typed, os.environ).exclude or ""
    if "/" in given:  # --exclude names a file of the user, which is not changed
        return {}
    exclude = {"exclude": ",".join([*([given] if given else []), *nodes])}
    return exclude if _would_run(benchmark, {**typed, **exclude}, output_dir) else {}


def _would_run(benchmark: Benchmark, typed: Mapping[str, Any], output_dir: Path) -> bool:
    """Return whether Slurm would accept a job with these options, without waiting for nodes that are down."""
    from launch.environments.selection import runtime_of
    from launch.slurm import options, refusals
    from launch.slurm.client import Slurm

    try:
        wanted = options.choose(benchmark.site, typed, os.environ)
        image = runtime_of(benchmark, find_backend(benchmark.backend)).image_file()
        slurm, waits_for = Slurm(benchmark.site), list[str]()
        refused = [*refusals.of_the_cluster(benchmark, wanted, slurm, output_dir.absolute(), image, waits_for)]
    except StepmarkError:
        return False
    return not (refused or waits_for)
