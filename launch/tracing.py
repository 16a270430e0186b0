"""`launch/report.py --trace`: finds what profilers left in a place, reads it, and holds it against our own clock.

The place is a run folder, a profiler's file, or any folder that holds some. Nothing is written into it: an export of
Nsight Systems goes into a temporary folder, because a run's raw files are sealed.
"""

import contextlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks import report as run_report
from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, StepmarkError
from benchmarks.runfolder import RESULT, STEPS, RunFolder
from benchmarks.trace.clock import Comparison, compare, undisturbed_steps
from benchmarks.trace.kinds import Kinds, read_kinds
from benchmarks.trace.nccl import NcclCalls, read_calls
from benchmarks.trace.nsys import read_nsys
from benchmarks.trace.report import ToOpen, TraceFile, TraceReport, mean_of
from benchmarks.trace.summary import Wanted, summarise
from benchmarks.trace.trace import Trace
from benchmarks.trace.xplane import read_xplane
from benchmarks.values import Benchmark, Profiling, Started, Step
from launch.trace_files import (
    EXAMPLE,
    SQLITE,
    XPLANE,
    Found,
    find_traces,
    no_trace,
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
    notes: list[str]


def trace_report(place: Path) -> TraceReport:
    """All that a place's traces say; RequestError where it holds none, or nothing of it can be read."""
    if not place.exists():
        raise RequestError("there is no such file or folder", where=f"--trace={place}", next_command=EXAMPLE)
    found = find_traces(place)
    if not found.everything:
        raise no_trace(place, found.run)
    run = _read_run(found.run, found.attempt) if found.run else None
    with tempfile.TemporaryDirectory(prefix="stepmark-nsys-") as room:
        files, comparison = _summarised(found, run, Path(room))
    nccl = _read_nccl(found.nccl_logs) if found.nccl_logs else None
    if not found.reports and nccl is None and not any(file.summary for file in files):
        raise _unreadable(files, found)
    return TraceReport(
        place=str(place),
        title=run_report.title(run.benchmark) if run else str(place),
        attempt=found.attempt,
        files=files,
        mean=mean_of(files),
        comparison=comparison,
        nccl=nccl,
        to_open=_to_open(place if place.is_dir() else place.parent, found),
        notes=[*found.notes, *(run.notes if run else [])],
    )


def _unreadable(files: Sequence[TraceFile], found: Found) -> RequestError:
    first = files[0] if files else None
    return RequestError(
        first.why_not if first else "there is no trace that can be summarised",
        where=first.path if first else str(found.everything[0]),
        why="the profiler, or the run, was ended while it wrote; or this is another kind of file",
        next_command="a run with --profile=xplane makes another",
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
    try:
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
    return Run(folder, benchmark, mine, started, notes)


# --- reading ------------------------------------------------------------------------------------


class _Reader:
    """Reads traces with one table of kinds, held against one run."""

    def __init__(self, run: Run | None) -> None:
        self._kinds: Kinds = read_kinds(Configs().root)
        self._run = run
        self._profiling: Profiling | None = run.benchmark.profiling if run else None
        self._wanted: Wanted | None = None

    def summarised(self, path: Path, trace: Trace, shown: Path) -> TraceFile:
        summary = summarise(trace, self._kinds, self._wanted_of(trace))
        return TraceFile(
            path=str(shown),
            format="xplane" if path.name.endswith(XPLANE) else "nsys",
            bytes=path.stat().st_size,
            summary=summary,
            why_not="" if summary else "it holds no operation of a device",
        )

    @property
    def undisturbed(self) -> frozenset[int]:
        return (self._wanted.steps if self._wanted else None) or frozenset()

    def _wanted_of(self, trace: Trace) -> Wanted:
        """The same steps of every host: those that the first one saw whole."""
        if self._wanted is None:
            steps = None
            if self._run is not None and self._run.steps:
                started = self._run.started.unix_seconds if self._run.started else None
                steps = undisturbed_steps(self._run.steps, started, trace, self._profiling)
            self._wanted = Wanted(steps=steps, profiling=self._profiling)
        return self._wanted


def _summarised(found: Found, run: Run | None, room: Path) -> tuple[list[TraceFile], Comparison | None]:
    reader = _Reader(run)
    files = [_read_one(reader, path, path) for path in (*found.xplanes, *found.databases)]
    exported = {path.stem for path in found.databases}
    waiting = [path for path in found.reports if path.stem not in exported]
    nsys = shutil.which("nsys")
    for number, path in enumerate(waiting):
        if nsys is None:
            files.append(_unsummarised(path, "listed only, nsys is not on PATH"))
        elif number >= MOST_EXPORTED:
            files.append(_unsummarised(path, f"not exported, one of {len(waiting)} (--trace={path} does it)"))
        else:
            files.append(_read_report(reader, nsys, path, room))
    summary = next((file.summary for file in files if file.summary is not None), None)
    return files, compare(summary, run.steps, reader.undisturbed) if summary and run else None


def _read_one(reader: _Reader, path: Path, shown: Path) -> TraceFile:
    if path.stat().st_size >= LARGE_BYTES:
        print(f"reading {shown.name} ({run_report.bytes_text(path.stat().st_size)}) ...", file=sys.stderr)
    try:
        trace = read_xplane(path.read_bytes(), path) if path.name.endswith(XPLANE) else read_nsys(path)
    except RequestError as error:
        return _unsummarised(shown, f"{error.what}: {error.why}" if error.why else error.what)
    return reader.summarised(path, trace, shown)


def _unsummarised(path: Path, why: str) -> TraceFile:
    kind: Literal["xplane", "nsys"] = "xplane" if path.name.endswith(XPLANE) else "nsys"
    return TraceFile(path=str(path), format=kind, bytes=path.stat().st_size, summary=None, why_not=why)


def _read_report(reader: _Reader, nsys: str, path: Path, room: Path) -> TraceFile:
    """A report through an export of its own."""
    database = room / f"{path.stem}{SQLITE}"
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(path)]
    print(f"exporting {path.name} ...", file=sys.stderr)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=EXPORT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _unsummarised(path, f"nsys export did not come to an end: {error}")
    if done.returncode != 0 or not database.is_file():
        last = (done.stderr or done.stdout).strip().splitlines()
        return _unsummarised(
            path, f"nsys export failed ({done.returncode}): {last[-1] if last else 'it said nothing'}"
        )
    return _read_one(reader, database, path)


def _read_nccl(paths: Sequence[Path]) -> NcclCalls:
    return read_calls((path.stem, _lines(path)) for path in paths)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as stream:
        yield from stream


# --- what opens them ----------------------------------------------------------------------------


def _to_open(place: Path, found: Found) -> list[ToOpen]:
    offers = [
        (
            "TensorBoard",
            f"python -m tensorboard.main --logdir {shlex.quote(str(place))}     (tab Profile; pip install xprof)",
            found.xplanes,
        ),
        ("Perfetto", "ui.perfetto.dev, Open trace file", found.trace_jsons),
        ("Nsight Systems", "nsys-ui FILE", found.reports),
    ]
    return [ToOpen(what=what, how=how, paths=list(map(str, paths))) for what, how, paths in offers if paths]
