"""`launch/report.py trace`: finds what profilers left in a place, reads it, and holds it against our own clock.

The place is a run folder, a profiler's file, or any folder that holds some. Nothing is written into it: an export of
Nsight Systems goes into a temporary folder, because a run's raw files are sealed.
"""

import contextlib
import dataclasses
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, StepmarkError
from benchmarks.rendering import report as run_report
from benchmarks.runs.runfolder import RESULT, STEPS, RunFolder
from benchmarks.trace.clock import Comparison, compare, undisturbed_steps
from benchmarks.trace.kinds import Kinds, read_kinds
from benchmarks.trace.nccl import NcclCalls, read_calls
from benchmarks.trace.nsys import read_nsys
from benchmarks.trace.report import ToOpen, TraceFile, TraceReport, mean_of
from benchmarks.trace.summary import DeviceTimes, HostSummary, Wanted, summarise
from benchmarks.trace.trace import Trace
from benchmarks.trace.xplane import read_xplane
from benchmarks.values import Benchmark, Started, Step
from launch.reports.trace_files import (
    NO_CALLS,
    REPORT,
    SQLITE,
    SUMMARISE,
    TRACE_JSON,
    XPLANE,
    Found,
    find_traces,
    labels,
    phase_note,
)

MOST_EXPORTED = 4  # an export takes minutes and as much room as the report itself
EXPORT_SECONDS = 900
LARGE_BYTES = 50_000_000  # from here on, reading takes long enough to say so


class Run(NamedTuple):
    """What is known of the run that was profiled."""

    folder: RunFolder
    benchmark: Benchmark
    steps: list[Step]  # of the rank whose clock counts
    started: Started | None
    tasks_per_node: int | None  # of the measured phase
    notes: list[str]


def trace_report(place: Path) -> TraceReport:
    """All that a place's traces say; RequestError where it holds none, or nothing of it can be read."""
    found = find_traces(place)
    run = _read_run(found.run, found.attempt) if found.run else None
    with tempfile.TemporaryDirectory(prefix="stepmark-nsys-") as room:
        files, comparison = _summarised(found, run, Path(room))
    nccl = read_calls((path.stem, _lines(path)) for path in found.nccl_logs) if found.nccl_logs else None
    to_list = found.of(REPORT) or found.others or any(file.summary for file in files)
    if not to_list and (nccl is None or not nccl.rows):
        raise _nothing_read(files, found, nccl)
    mean = mean_of(files)
    return TraceReport(
        place=str(place),
        title=run_report.title(run.benchmark) if run else str(place),
        attempt=found.attempt,
        phase=found.phase,
        files=[*files, *_of_other_phases(found)],
        mean=mean,
        comparison=comparison,
        nccl=nccl,
        to_open=_to_open(place if place.is_dir() else place.parent, found),
        notes=[*_notes(found, run, mean), *(run.notes if run else [])],
    )


def _notes(found: Found, run: Run | None, mean: DeviceTimes | None) -> list[str]:
    notes = list(found.notes)
    if not found.is_measured and found.phase is not None:
        notes.insert(0, phase_note(found.phase))
    elif found.others and not found.files:
        notes.insert(0, f"phase {found.phase}, which was measured, has no trace")
    if run is not None and mean is not None and mean.devices < run.benchmark.gpus:
        notes.append(f"{mean.devices} of {run.benchmark.gpus} devices are in the traces")
    return notes


def _nothing_read(files: Sequence[TraceFile], found: Found, nccl: NcclCalls | None) -> RequestError:
    if nccl is not None:
        cut = (
            f"{nccl.unreadable_lines} lines of calls are cut or of an unknown kind; " if nccl.unreadable_lines else ""
        )
        place = found.nccl_logs[0].parent
        return RequestError(
            f"no call of NCCL was traced: the {len(found.nccl_logs)} nccl-*.log hold none",
            where=str(place),
            why=cut + NO_CALLS,
            next_command=f"grep NCCL {shlex.quote(str(place))}/rank-0.log shows what NCCL was told",
        )
    first = files[0] if files else None
    return RequestError(
        first.why_not if first else "there is no trace that can be summarised",
        where=first.path if first else str(found.files[0]),
        why="the profiler, or the run, was ended while it wrote; or this is another kind of file",
        next_command=first.next_command if first else "a run with --profile=xplane makes another",
    )


# --- the run ------------------------------------------------------------------------------------


def _read_run(folder: RunFolder, attempt: int | None) -> Run | None:
    """None where the request cannot be read: the trace is still worth a look."""
    try:
        benchmark = folder.benchmark()
    except StepmarkError as error:
        print(f"stepmark: {error}", file=sys.stderr)
        return None
    notes: list[str] = []
    steps: list[Step] = []
    started: Started | None = None
    number = attempt or 1
    tasks: int | None = None
    try:
        tasks = folder.measured_phase().tasks_per_node
        backend = find_backend(benchmark.backend)
        record = backend.read_phase(benchmark, folder.phase_dir(folder.measured_phase().name, number), number)
        steps = record.steps
        started = next((one for one in record.started if one.rank == 0), None)
    except StepmarkError as error:
        notes.append(f"what the worker wrote cannot be read: {error.what}")
    if (folder.path / STEPS).is_file() and (folder.path / RESULT).is_file():
        with contextlib.suppress(StepmarkError):
            steps = folder.stored_steps()
            if folder.stored_result().status != "valid":
                notes.append(f"the run is {folder.stored_result().status}")
    else:
        notes.append("the run has no result: it was cut off, or has not ended")
    mine = [step for step in steps if step.attempt == number and step.rank == 0]
    return Run(folder, benchmark, mine, started, tasks, notes)


# --- reading ------------------------------------------------------------------------------------


class _Reader:
    """Reads traces with one table of kinds, held against one run."""

    def __init__(self, found: Found, run: Run | None) -> None:
        self._kinds: Kinds = read_kinds(Configs().root)
        self._run = run if found.is_measured else None  # of another phase our clock says nothing
        self._labels = labels(found, run.tasks_per_node if run else None)
        self._phase = found.phase or ""
        self._wanted: Wanted | None = None

    def read(self, path: Path, shown: Path) -> TraceFile:
        """The summary of a file; `shown` is what a person knows it by."""
        try:
            size = path.stat().st_size
            if size >= LARGE_BYTES:
                print(f"reading {shown.name} ({run_report.bytes_text(size)}) ...", file=sys.stderr)
            trace = read_xplane(path.read_bytes(), path) if path.name.endswith(XPLANE) else read_nsys(path)
            trace = dataclasses.replace(trace, host=trace.host + self._labels.get(shown, ""))
            summary = summarise(trace, self._kinds, self._wanted_of(trace, shown))
        except RequestError as error:
            return self.listed(shown, f"{error.what}: {error.why}" if error.why else error.what, error.next_command)
        except OSError as error:
            return self.listed(shown, f"{shown.name} cannot be read: {error.strerror or error}")
        return self.listed(shown, "" if summary else "it holds no operation of a device", summary=summary)

    def listed(self, path: Path, why: str, next_command: str = "", summary: HostSummary | None = None) -> TraceFile:
        return _listed(path, self._phase, why, next_command, summary)

    def compared(self, files: Sequence[TraceFile]) -> Comparison | None:
        file = next((file for file in files if file.summary is not None), None)
        if file is None or file.summary is None or self._run is None or file.summary.window.is_whole_trace:
            return None
        undisturbed = (self._wanted.steps if self._wanted else None) or frozenset()
        whole_run = _is_of_whole_run(Path(file.path), self._run.benchmark)
        return compare(file.summary, self._run.steps, undisturbed, whole_run=whole_run)

    def _wanted_of(self, trace: Trace, path: Path) -> Wanted:
        """The same steps of every host: those that the first one saw whole."""
        if self._run is None or _is_of_whole_run(path, self._run.benchmark):
            return Wanted()
        if self._wanted is None:
            run, profiling = self._run, self._run.benchmark.profiling
            started = run.started.unix_seconds if run.started else None
            steps = undisturbed_steps(run.steps, started, trace, profiling) if run.steps else None
            self._wanted = Wanted(steps=steps, profiling=profiling)
        return self._wanted


def _is_of_whole_run(path: Path, benchmark: Benchmark) -> bool:
    """Nsight Systems records from one step to another by CUDA's own marks: without CUDA, the whole program."""
    return not path.name.endswith(XPLANE) and benchmark.hardware.kind != "gpu"


def _listed(
    path: Path, phase: str, why: str, next_command: str = "", summary: HostSummary | None = None
) -> TraceFile:
    return TraceFile(
        path=str(path),
        format="xplane" if path.name.endswith(XPLANE) else "nsys",
        phase=phase,
        bytes=path.stat().st_size if path.exists() else 0,
        summary=summary,
        why_not=why,
        next_command=next_command,
    )


def _of_other_phases(found: Found) -> list[TraceFile]:
    return [
        _listed(path, phase, phase_note(phase), f"{SUMMARISE} {shlex.quote(str(path))}")
        for path, phase in found.others.items()
        if path.name.endswith((XPLANE, REPORT, SQLITE))
    ]


def _summarised(found: Found, run: Run | None, room: Path) -> tuple[list[TraceFile], Comparison | None]:
    reader = _Reader(found, run)
    files = [reader.read(path, path) for path in (*found.of(XPLANE), *found.of(SQLITE))]
    exported = {path.with_suffix("") for path in found.of(SQLITE)}
    waiting = [path for path in found.of(REPORT) if path.with_suffix("") not in exported]
    nsys = shutil.which("nsys")
    for number, path in enumerate(waiting):
        if nsys is None:
            files.append(reader.listed(path, "listed only, nsys is not on PATH"))
        elif number >= MOST_EXPORTED:
            files.append(reader.listed(path, f"not exported, one of {len(waiting)} ({SUMMARISE} {path} does it)"))
        else:
            files.append(_read_report(reader, nsys, path, room))
    return files, reader.compared(files)


def _read_report(reader: _Reader, nsys: str, path: Path, room: Path) -> TraceFile:
    """A report through an export of its own."""
    database = room / f"{path.stem}{SQLITE}"
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(path)]
    print(f"exporting {path.name} ...", file=sys.stderr)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=EXPORT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return reader.listed(path, f"nsys export did not come to an end: {error}")
    if done.returncode != 0 or not database.is_file():
        last = (done.stderr or done.stdout).strip().splitlines()
        return reader.listed(
            path, f"nsys export failed ({done.returncode}): {last[-1] if last else 'it said nothing'}"
        )
    return reader.read(database, path)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as stream:
        yield from stream


# --- what opens them ----------------------------------------------------------------------------


def _to_open(place: Path, found: Found) -> list[ToOpen]:
    tensorboard = (
        f"python -m tensorboard.main --logdir {shlex.quote(str(place))}     (tab Profile; pip install xprof)"
    )
    offers = [
        ("TensorBoard", tensorboard, found.of(XPLANE, all_phases=True)),
        ("Perfetto", "ui.perfetto.dev, Open trace file", found.of(TRACE_JSON)),
        ("Nsight Systems", "nsys-ui FILE", found.of(REPORT, all_phases=True)),
    ]
    return [ToOpen(what=what, how=how, paths=list(map(str, paths))) for what, how, paths in offers if paths]
