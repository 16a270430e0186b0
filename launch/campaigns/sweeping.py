"""Runs the cells of a sweep: throttled, resumable, one launcher at a time; its record, and its table.

What a site does with one run is a Runner. Before anything of a run exists its name is in the record, so that a
launcher killed at any moment leaves no run that the next one does not know of.
"""

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarks.backend import find_backend
from benchmarks.errors import EXIT_FAILED, EXIT_VALID, RequestError, RunError, StepmarkError
from benchmarks.measuring.summary import Result
from benchmarks.rendering.report import seconds_text
from benchmarks.request.resolve import Request
from benchmarks.runs.runfolder import RESULT, RunFolder, new_run_id, without_until, write_atomically
from benchmarks.sweeps import sweep as record
from benchmarks.sweeps import sweep_report
from benchmarks.sweeps.sweep import Slot, Sweep, SweepRun
from benchmarks.values import Benchmark, json_text
from launch.campaigns.one_launcher import alone
from launch.campaigns.patience import wait_for_one
from launch.cli import EXIT_INTERRUPTED
from launch.running.local import interrupted_once
from launch.running.showing import refused_text

# One cell may be what cannot be started; where the next cannot either, it is the site.
FAILED_STARTS = 2


class Runner(Protocol):
    """What a site does with the runs of a sweep."""

    def resolve(self, request: Request) -> Benchmark:
        """What a request means; RequestError for all that can be known to fail at this site."""
        ...

    def understand(self, request: Request) -> Benchmark:
        """What a request means; no Slurm is asked. A compiler that is here may be asked for its flags."""
        ...

    def refusals(self, benchmark: Benchmark) -> Iterator[StepmarkError]:
        """All that would be refused now, for a dry run."""
        ...

    def start(self, benchmark: Benchmark, run_id: str) -> None:
        """Make the run's folder and submit it (a queue), or run it to its end (this machine).

        StepmarkError: it could not be started; where it left the folder, `ended` is asked what became of it.
        KeyboardInterrupt: the person ended it.
        """
        ...

    def ended(self, run_ids: Sequence[str]) -> set[str]:
        """Those that go on no more, whatever became of them; their results are written. One question for all.

        Asked too about runs of a launcher that was killed, also in the middle of `start`.
        """
        ...


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
    """Run every cell `repeats` times and print the table; the exit code is that of the worst run."""
    for flag, number in (("repeats", repeats), ("max_jobs", max_jobs)):
        if number < 1:
            raise RequestError(f"--{flag}={number}: it must be 1 or more", where=f"--{flag}")
    checked = record.check(requests, runner.resolve, skip_refused)
    new = record.new_sweep(requests, checked, repeats, command)
    lock = output_dir / f".sweep-{new.key}.lock"
    with alone(lock, work="sweep", kept_there="the record of the sweep", two_would="start every run twice"):
        sweep = _found(output_dir, new) if resume else None
        if sweep is None:
            sweep = new
            _say(f"sweep of {_runs(len(checked.cells) * repeats)}: {_path(output_dir, new)}")
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
        self.results = results_of(sweep, output_dir)
        self.going = [run.run_id for run in sweep.runs if _may_go_on(run, output_dir)]
        self._benchmarks = benchmarks
        self._runner = runner
        self._output_dir = output_dir
        self._max_jobs = max_jobs
        self._sleep = sleep
        self._labels = record.labels([cell.request for cell in sweep.cells])
        self._failed_starts = 0  # in a row
        self._code = EXIT_VALID  # of what was started, where nobody waits for the results

    def run(self, wait: bool) -> int:
        try:
            self._keep(self.sweep)
            self._take_ended()
            todo = self._plan_of_work()
            while todo or self.going:
                while todo and len(self.going) < self._max_jobs and self._failed_starts < FAILED_STARTS:
                    self._start(todo.pop(0))
                if not wait:
                    return self._left_behind(len(todo))
                if self._failed_starts >= FAILED_STARTS and todo:
                    _say(f"{FAILED_STARTS} starts in a row failed: the other {_runs(len(todo))} are not started")
                    todo = []
                wait_for_one(self.going, self._take_ended, self._sleep)
        except KeyboardInterrupt:
            _say("interrupted")
            with contextlib.suppress(StepmarkError):  # where nobody answers now, they are said to go on
                self._take_ended()
            self._say_how_to_go_on()
            return EXIT_INTERRUPTED
        except (StepmarkError, OSError):
            self._say_how_to_go_on()
            raise
        flags = xla_flags_of(self.sweep, self._output_dir)
        report = sweep_report.report_of(self.sweep, self.results, xla_flags=flags)
        print("\n" + sweep_text(report, _path(self._output_dir, self.sweep)), flush=True)
        code = record.exit_code(self.sweep, self.results)
        if code != EXIT_VALID:
            self._say_how_to_go_on()
        self._keep(msgspec.structs.replace(self.sweep, shown=code == EXIT_VALID))
        return code

    def _plan_of_work(self) -> list[Slot]:
        todo = record.still_to_do(self.sweep, self.results, self.going)
        if self.sweep.runs:
            started = {Slot(run.cell, run.repeat) for run in self.sweep.runs}
            again = sum(slot in started for slot in todo)
            _say(
                f"resuming {_path(self._output_dir, self.sweep)}: {self._valid()} of {_runs(self._all())} valid and "
                f"kept, {len(self.going)} going on, {again} to be run again, {len(todo) - again} not started yet "
                "(--noresume starts anew)"
            )
        return todo

    def _start(self, slot: Slot) -> None:
        benchmark = self._benchmarks[slot.cell]
        run = SweepRun(
            run_id=_new_name(benchmark, self._output_dir), cell=slot.cell, repeat=slot.repeat, started=time.time()
        )
        self._record([*self.sweep.runs, run])
        self.going.append(run.run_id)
        place = f"{record.slots(len(self.sweep.cells), self.sweep.repeats).index(slot) + 1} of {self._all()}"
        _say(f"run {place}: {self._labels[slot.cell]}, repeat {slot.repeat}: {run.run_id}")
        try:
            self._runner.start(benchmark, run.run_id)
        except StepmarkError as error:
            _say(f"stepmark: {error}")
            run = msgspec.structs.replace(run, trouble=error.what)
            if not _may_go_on(run, self._output_dir):
                self._take_end(run.run_id)
            self._record([*self.sweep.runs[:-1], run])
            self._failed_starts += 1
            self._code = EXIT_FAILED
        else:
            self._failed_starts = 0

    def _take_ended(self) -> bool:
        ended = self._runner.ended(self.going) if self.going else set()
        for run_id in [run_id for run_id in self.going if run_id in ended]:
            self._take_end(run_id)
            _say(f"{run_id}: {_outcome(self.results[run_id])}")
            self._say_why(run_id)
        return bool(ended)

    def _say_why(self, run_id: str) -> None:
        """The first cause in the logs of a run that failed."""
        result = self.results[run_id]
        if result is not None and result.status == "failed":
            from launch.checks.diagnosing import why_failed

            why = why_failed(RunFolder(self._output_dir / run_id))
            _say(f"  {why}" if why else f"  next:  python launch/doctor.py {self._output_dir / run_id}")

    def _take_end(self, run_id: str) -> None:
        self.going.remove(run_id)
        self.results[run_id] = _result(self._output_dir / run_id)

    def _left_behind(self, waiting: int) -> int:
        _say(f"{_runs(len(self.going))} in the queue, {waiting} wait for a place: at most {self._max_jobs} at once")
        self._say_how_to_go_on()
        return self._code

    def _say_how_to_go_on(self) -> None:
        _say(f"{self._valid()} of {_runs(self._all())} valid: {_path(self._output_dir, self.sweep)}")
        if self.going:
            _say(f"in the queue they go on: {', '.join(self.going)}")
            _say(
                f"  to see or cancel them:  python launch/status.py --output_dir={shlex.quote(str(self._output_dir))}"
            )
        _say(f"  next:  the same command goes on where this one ended: {shlex.join(self.sweep.command)}")

    def _all(self) -> int:
        return len(self.sweep.cells) * self.sweep.repeats

    def _valid(self) -> int:
        return self._all() - len(record.still_to_do(self.sweep, self.results, ()))

    def _record(self, runs: list[SweepRun]) -> None:
        self._keep(msgspec.structs.replace(self.sweep, runs=runs))

    def _keep(self, sweep: Sweep) -> None:
        self.sweep = sweep
        try:
            write_atomically(_path(self._output_dir, self.sweep), json_text(self.sweep).encode())
        except RunError as error:
            raise RunError(
                f"the record of the sweep could not be written: {error.what}",
                where=error.where,
                why="what it said before is kept, and nothing is started that it does not say",
                next_command="make space; the same command then goes on",
            ) from None


def _new_name(benchmark: Benchmark, output_dir: Path) -> str:
    """Names of one second differ in four digits of chance."""
    while (output_dir / (run_id := new_run_id(benchmark))).exists():
        pass
    return run_id


def _may_go_on(run: SweepRun, output_dir: Path) -> bool:
    """Its folder is the first thing that is made of a run, its result the last."""
    folder = output_dir / run.run_id
    return folder.is_dir() and not (folder / RESULT).exists()


# --- the record and the results -----------------------------------------------------------------


def read_sweep(path: Path) -> Sweep:
    try:
        stored = msgspec.json.decode(path.read_bytes())
        for cell in [*stored["cells"], *stored["refused"]]:
            without_until(cell["request"])
        sweep = msgspec.convert(stored, Sweep)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError, TypeError, KeyError) as error:
        raise RequestError(
            f"the record of the sweep cannot be read: {error}",
            where=str(path),
            next_command="--noresume starts a new sweep; its runs are in their folders still",
        ) from None
    if sweep.schema_version != record.SCHEMA_VERSION:
        raise RequestError(
            f"the record of the sweep has version {sweep.schema_version}; {record.SCHEMA_VERSION} is read here",
            where=str(path),
            next_command="--noresume starts a new sweep",
        )
    return sweep


def results_of(sweep: Sweep, output_dir: Path) -> dict[str, Result | None]:
    """The results of its runs as their folders have them now."""
    return {run.run_id: _result(output_dir / run.run_id) for run in sweep.runs}


def _result(path: Path) -> Result | None:
    try:
        return RunFolder(path).stored_result()
    except (RequestError, OSError):  # of a run that is then said to have left none
        return None


def xla_flags_of(sweep: Sweep, output_dir: Path) -> dict[str, str]:
    """The XLA flags of each run's measured phase, by run id; without those whose plan can't be read."""
    found = {}
    for run in sweep.runs:
        with contextlib.suppress(RequestError, OSError):
            environment = RunFolder(output_dir / run.run_id).measured_phase().environment
            found[run.run_id] = environment.get("XLA_FLAGS", "")
    return found


def report_of_file(path: Path) -> sweep_report.SweepReport:
    """What a sweep has measured until now, from its record and the run folders beside it."""
    sweep = read_sweep(path)
    going = [run.run_id for run in sweep.runs if _may_go_on(run, path.parent)]
    flags = xla_flags_of(sweep, path.parent)
    return sweep_report.report_of(sweep, results_of(sweep, path.parent), going, flags)


def sweep_text(report: sweep_report.SweepReport, path: Path) -> str:
    return f"{sweep_report.table_text(report)}\nfiles: {path}"


def plan_text(requests: Sequence[Request], repeats: int, runner: Runner, skip_refused: bool) -> str:
    """What a dry run of a sweep shows: it needs no Slurm, no image and no shared folder."""
    checked = record.check(requests, runner.understand, skip_refused)
    refusals = (refusal for benchmark in checked.benchmarks for refusal in runner.refusals(benchmark))
    noted = ((b.backend, note) for b in checked.benchmarks for note in find_backend(b.backend).plan(b).notes)
    notes = "".join(f"\nnote: {backend}: {note}" for backend, note in dict.fromkeys(noted))
    return record.plan_text(checked, repeats) + notes + refused_text(refusals)


def _found(output_dir: Path, new: Sweep) -> Sweep | None:
    """The newest sweep of the same flags, where it is not done and still means the same."""
    paths = sorted(output_dir.glob(f"sweep-*-{new.key}.json"))
    if not paths:
        return None
    path = paths[-1]
    sweep = read_sweep(path)
    if sweep.shown and not record.still_to_do(sweep, results_of(sweep, output_dir), ()):
        return None
    if not record.means_the_same(sweep, new):
        _say(f"{path}: not resumed, the configs have changed since, so these flags mean other benchmarks now")
        return None
    return sweep


def _path(output_dir: Path, sweep: Sweep) -> Path:
    return output_dir / f"{sweep.sweep_id}.json"


# --- words --------------------------------------------------------------------------------------


def _outcome(result: Result | None) -> str:
    if result is None:
        return "ended and left no result"
    if result.status != "valid":
        return f"{result.status}: {'; '.join(result.reasons)}"
    median = result.seconds_per_step.median
    return f"valid, {seconds_text(median)}/step" if median is not None else "valid"


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
