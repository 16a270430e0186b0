"""Run the cells of a sweep with a limit on queued runs, and print a table. Only one launcher may run a sweep.

A Runner runs one benchmark at a site. The sweep records the name of a run before the run starts. If the launcher is
killed, the next launcher can therefore find every run.
"""

import contextlib
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.backend import find_backend
from benchmarks.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_VALID, RequestError, StepmarkError
from benchmarks.request.resolve import Request
from benchmarks.runs.campaign_record import end_text, result_of, write_record
from benchmarks.runs.runfolder import RunFolder
from benchmarks.sweeps import sweep as record
from benchmarks.sweeps import sweep_report
from benchmarks.sweeps.sweep import Slot, Sweep, SweepRun
from benchmarks.text import plural
from benchmarks.values import Benchmark
from launch.campaigns.scheduler import Scheduler, Work, exclusive_lock
from launch.machine.processes import interrupted_once
from launch.running.runners import Runner, refused_text
from launch.terminal.output import document
from launch.terminal.progress import note, say


def run_sweep(
    requests: Sequence[Request],
    repeats: int,
    runner: Runner,
    output_dir: Path,
    *,
    command: Sequence[str],
    max_jobs: int,
    resume: bool = True,
    skip_refused: bool = False,
    wait: bool = True,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run every cell `repeats` times and print the table. Return the exit code of the worst run."""
    for flag, number in (("repeats", repeats), ("max_jobs", max_jobs)):
        if number < 1:
            raise RequestError(f"--{flag}={number} must be 1 or more", where=f"--{flag}")
    checked = record.check(requests, runner.resolve, skip_refused)
    for choice in record.open_choices(checked):
        note(choice)
    new = record.new_sweep(requests, checked, repeats, command)
    lock = output_dir / f".sweep-{new.key}.lock"
    with exclusive_lock(lock, "sweep"):
        sweep = _resumable_sweep(output_dir, new) if resume else None
        if sweep is None:
            sweep = new
            say(f"sweep of {plural(len(checked.cells) * repeats, 'run')}: {_path(output_dir, new)}")
        launcher = _Launcher(sweep, checked.benchmarks, runner, output_dir, max_jobs, sleep)
        with interrupted_once():
            return launcher.run(wait)


class _Launcher:
    """One launcher's work on a sweep."""

    def __init__(
        self,
        sweep: Sweep,
        benchmarks: Sequence[Benchmark],
        runner: Runner,
        output_dir: Path,
        max_jobs: int,
        sleep: Callable[[float], None],
    ) -> None:
        self.sweep = sweep
        self.results = sweep_report.results_of(sweep, output_dir)
        self._benchmarks = benchmarks
        self._runner = runner
        self._output_dir = output_dir
        self._path = _path(output_dir, sweep)
        self._labels = record.labels([cell.request for cell in sweep.cells])
        self._slots = record.slots(len(sweep.cells), sweep.repeats)
        self._scheduler = Scheduler(output_dir, max_jobs, self._started, self._ended, sleep)

    def run(self, wait: bool) -> int:
        try:
            self._keep(self.sweep)
            left = [run for run in self.sweep.runs if sweep_report.may_continue(run, self._output_dir)]
            self._scheduler.follow(self._work(Slot(run.cell, run.repeat), run.run_id) for run in left)
            todo = record.still_to_do(self.sweep, self.results, self._scheduler.going)
            if self.sweep.runs:
                say(f"resuming {self._path}: {self._valid()}, {len(todo)} left (--noresume starts again)")
            waiting = self._scheduler.run([self._work(slot) for slot in todo], wait=wait)
        except KeyboardInterrupt:
            say("interrupted")
            with contextlib.suppress(StepmarkError):  # if the site does not answer, its runs count as running
                self._scheduler.take_ended()
            self._say_how_to_resume()
            return EXIT_INTERRUPTED
        except (StepmarkError, OSError):
            self._say_how_to_resume()
            raise
        if not wait:
            say(f"{plural(len(self._scheduler.going), 'run')} in the queue, {len(waiting)} waiting")
            self._say_how_to_resume()
            document(self._report())
            return EXIT_FAILED if self._scheduler.start_failed else EXIT_VALID
        report = self._report()
        print("\n" + sweep_report.text(report, self._path), flush=True)
        document(report)
        code = record.exit_code(self.sweep, self.results)
        if code != EXIT_VALID:
            self._say_how_to_resume()
        self._keep(msgspec.structs.replace(self.sweep, shown=code == EXIT_VALID))
        return code

    def _report(self) -> sweep_report.SweepReport:
        return sweep_report.report_of(self.sweep, self.results, self._output_dir, list(self._scheduler.going))

    def _work(self, slot: Slot, run_id: str = "") -> Work:
        place = f"run {self._slots.index(slot) + 1} of {len(self._slots)}"
        label = f"{place}: {self._labels[slot.cell]}, repeat {slot.repeat}"
        request = self.sweep.cells[slot.cell].request
        return Work(slot, label, self._runner, self._benchmarks[slot.cell], request, run_id)

    def _started(self, work: Work) -> None:
        run = SweepRun(run_id=work.run_id, cell=work.key.cell, repeat=work.key.repeat, started=time.time())
        self._keep(msgspec.structs.replace(self.sweep, runs=[*self.sweep.runs, run]))

    def _ended(self, work: Work, trouble: str | None) -> None:
        result = self.results[work.run_id] = result_of(self._output_dir / work.run_id)
        if trouble is not None:
            runs = [
                msgspec.structs.replace(run, trouble=trouble) if run.run_id == work.run_id else run
                for run in self.sweep.runs
            ]
            self._keep(msgspec.structs.replace(self.sweep, runs=runs))
            return
        say(f"{work.run_id}: {end_text(result)}")
        if result is not None and result.status == "failed":
            from benchmarks.runs.diagnosing import why_failed

            run = self._output_dir / work.run_id
            why = why_failed(RunFolder(run))
            say(f"  {why}" if why else f"  next:  python launch/doctor.py logs {shlex.quote(str(run))}")

    def _say_how_to_resume(self) -> None:
        say(f"{self._valid()}: {self._path}")
        if self._scheduler.going:
            say(f"still in the queue: {', '.join(self._scheduler.going)}")
            folder = shlex.quote(str(self._output_dir))
            say(f"  to see or cancel them:  python launch/status.py --output_dir={folder}")
        say(f"  to resume it:  {shlex.join(self.sweep.command)}")

    def _valid(self) -> str:
        valid = len(self._slots) - len(record.still_to_do(self.sweep, self.results, ()))
        return f"{valid} of {plural(len(self._slots), 'run')} valid"

    def _keep(self, sweep: Sweep) -> None:
        self.sweep = sweep
        write_record(self._path, sweep, "sweep")


# --- texts, and the record of an earlier launcher -----------------------------------------------------------------


def plan_text(checked: record.CheckedCells, repeats: int, runner: Runner) -> str:
    """Return the text of a sweep's dry run, which works without Slurm, images and shared folders."""
    from benchmarks.model.estimate import read_published
    from benchmarks.model.forecast import forecast
    from launch.terminal import places

    refusals = (refusal for benchmark in checked.benchmarks for refusal in runner.refusals(benchmark))
    planned = ((b.backend, runner.plan(b, find_backend(b.backend))) for b in checked.benchmarks)
    noted = [f"{backend}: {note}" for backend, plan in planned for note in plan.notes]
    notes = "".join(f"\nnote: {note}" for note in dict.fromkeys([*noted, *record.open_choices(checked)]))
    published = read_published(places.configs())
    expected = [
        None if b.is_submission else forecast(b, find_backend(b.backend).storage(b), published)
        for b in checked.benchmarks
    ]
    return "\n\n".join(filter(None, [refused_text(refusals), record.plan_text(checked, repeats, expected) + notes]))


def _resumable_sweep(output_dir: Path, new: Sweep) -> Sweep | None:
    """Return the newest sweep with the same flags, if it is unfinished and its benchmarks are unchanged."""
    paths = sorted(output_dir.glob(f"sweep-*-{new.key}.json"))
    if not paths:
        return None
    path = paths[-1]
    sweep = sweep_report.read_sweep(path, "--resume=false")
    if sweep.shown and not record.still_to_do(sweep, sweep_report.results_of(sweep, output_dir), ()):
        return None
    if [cell.digest for cell in sweep.cells] != [cell.digest for cell in new.cells]:
        say(f"{path}: not resumed, because a change in the configs has changed its benchmarks")
        return None
    return sweep


def _path(output_dir: Path, sweep: Sweep) -> Path:
    return output_dir / f"{sweep.sweep_id}.json"
