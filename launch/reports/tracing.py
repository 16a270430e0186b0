"""`launch/report.py trace`: finds what profilers left in a place, reads it, and holds it against our own clock.

The place is a run folder, a profiler's file, or any folder that holds some. Nothing is written into it: an export of
Nsight Systems goes into a temporary folder, because a run's raw files are sealed.
"""

import contextlib
import dataclasses
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, StepmarkError
from benchmarks.rendering import report as run_report
from benchmarks.runs.runfolder import RESULT, STEPS, RunFolder
from benchmarks.trace.files import NO_CALLS, REPORT, SQLITE, XPLANE, Found, find_traces, labels
from benchmarks.trace.kinds import read_kinds
from benchmarks.trace.nccl import read_calls
from benchmarks.trace.nsys import read_nsys
from benchmarks.trace.report import Comparison, TraceFile, TraceReport, compare, mean_of, undisturbed_steps
from benchmarks.trace.summary import HostSummary, Wanted, summarise
from benchmarks.trace.trace import Trace
from benchmarks.trace.xplane import read_xplane
from benchmarks.values import Benchmark, Step

EXPORT_SECONDS = 900


class Run(NamedTuple):
    """What is known of the run that was profiled."""

    benchmark: Benchmark
    steps: list[Step]  # of the rank whose clock counts
    started_unix_seconds: float | None
    tasks_per_node: int | None  # of the measured phase


def trace_report(place: Path) -> TraceReport:
    """All that a place's traces say; RequestError where it holds none, or nothing of it can be read."""
    found = find_traces(place)
    notes = found.notes
    run = _read_run(found.run, found.attempt or 1, notes) if found.run else None
    reader = _Reader(found, run)
    with tempfile.TemporaryDirectory(prefix="stepmark-nsys-") as room:
        files = [*map(reader.read, found.of(XPLANE)), *map(reader.read, found.of(SQLITE))]
        files += _read_reports(reader, found, Path(room))
    nccl = read_calls((path.stem, _lines(path)) for path in found.nccl_logs) if found.nccl_logs else None
    mean = mean_of(files)
    if not found.of(REPORT) and mean is None and (nccl is None or not nccl.rows):
        first = files[0] if files else None
        raise RequestError(
            first.why_not if first else "no call of NCCL was traced",
            where=first.path if first else str(found.files[0]),
            why="" if first else NO_CALLS,
            next_command="a run with --profile=xplane makes another" if first else "",
        )
    if run is not None and mean is not None and mean.devices < run.benchmark.gpus:
        notes.append(f"{mean.devices} of {run.benchmark.gpus} devices are in the traces")
    return TraceReport(
        place=str(place),
        title=run_report.title(run.benchmark) if run else str(place),
        attempt=found.attempt,
        phase=found.phase,
        files=files,
        mean=mean,
        comparison=reader.compared(files),
        nccl=nccl,
        notes=notes,
    )


def _read_run(folder: RunFolder, attempt: int, notes: list[str]) -> Run | None:
    """None where the request cannot be read: the trace is still worth a look."""
    try:
        benchmark = folder.benchmark()
    except StepmarkError as error:
        print(f"stepmark: {error}", file=sys.stderr)
        return None
    steps: list[Step] = []
    started, tasks = None, None
    try:
        phase = folder.measured_phase()
        tasks = phase.tasks_per_node
        record = find_backend(benchmark.backend).read_phase(benchmark, folder.phase_dir(phase.name, attempt), attempt)
        steps = record.steps
        started = next((one.unix_seconds for one in record.started if one.rank == 0), None)
    except StepmarkError as error:
        notes.append(f"what the worker wrote cannot be read: {error.what}")
    if (folder.path / STEPS).is_file() and (folder.path / RESULT).is_file():
        with contextlib.suppress(StepmarkError):
            steps = folder.stored_steps()
            if folder.stored_result().status != "valid":
                notes.append(f"the run is {folder.stored_result().status}")
    else:
        notes.append("the run has no result: it was cut off, or has not ended")
    mine = [step for step in steps if step.attempt == attempt and step.rank == 0]
    return Run(benchmark, mine, started, tasks)


class _Reader:
    """Reads traces with one table of kinds, held against one run."""

    def __init__(self, found: Found, run: Run | None) -> None:
        self._kinds = read_kinds(Configs().root)
        self._run = run if found.is_measured else None  # of another phase our clock says nothing
        self._labels = labels(found, run.tasks_per_node if run else None)
        self._wanted: Wanted | None = None

    def read(self, path: Path, shown: Path | None = None) -> TraceFile:
        """The summary of a file; `shown` is what a person knows it by."""
        shown = shown or path
        try:
            trace = read_xplane(path.read_bytes(), path) if path.name.endswith(XPLANE) else read_nsys(path)
            trace = dataclasses.replace(trace, host=trace.host + self._labels.get(shown, ""))
            summary = summarise(trace, self._kinds, self._wanted_of(trace, shown))
        except RequestError as error:
            return _listed(shown, f"{error.what}: {error.why}" if error.why else error.what)
        except OSError as error:
            return _listed(shown, f"{shown.name} cannot be read: {error.strerror or error}")
        return _listed(shown, "" if summary else "it holds no operation of a device", summary)

    def compared(self, files: list[TraceFile]) -> Comparison | None:
        summary = next((file.summary for file in files if file.summary is not None), None)
        if summary is None or self._run is None or summary.window.is_whole_trace:
            return None
        undisturbed = (self._wanted.steps if self._wanted else None) or frozenset()
        return compare(summary, self._run.steps, undisturbed)

    def _wanted_of(self, trace: Trace, path: Path) -> Wanted:
        """The same steps of every host: those that the first one saw whole.

        Nsight Systems records from one step to another by CUDA's own marks: without CUDA, the whole program.
        """
        run = self._run
        if run is None or (not path.name.endswith(XPLANE) and run.benchmark.hardware.kind != "gpu"):
            return Wanted()
        if self._wanted is None:
            profiling = run.benchmark.profiling
            steps = undisturbed_steps(run.steps, run.started_unix_seconds, trace, profiling) if run.steps else None
            self._wanted = Wanted(steps=steps, profiling=profiling)
        return self._wanted


def _listed(path: Path, why_not: str, summary: HostSummary | None = None) -> TraceFile:
    return TraceFile(
        path=str(path),
        format="xplane" if path.name.endswith(XPLANE) else "nsys",
        bytes=path.stat().st_size if path.exists() else 0,
        summary=summary,
        why_not=why_not,
    )


def _read_reports(reader: _Reader, found: Found, room: Path) -> Iterator[TraceFile]:
    """Nsight Systems' reports, each through an export of its own where there is none beside it."""
    exported = {path.with_suffix("") for path in found.of(SQLITE)}
    waiting = [path for path in found.of(REPORT) if path.with_suffix("") not in exported]
    nsys = shutil.which("nsys")
    for path in waiting:
        if nsys is None:
            yield _listed(path, "listed only, nsys is not on PATH (nsys-ui opens it)")
        else:
            yield _read_report(reader, nsys, path, room)


def _read_report(reader: _Reader, nsys: str, path: Path, room: Path) -> TraceFile:
    database = room / f"{path.stem}{SQLITE}"
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(path)]
    print(f"exporting {path.name} ...", file=sys.stderr)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=EXPORT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _listed(path, f"nsys export did not come to an end: {error}")
    if done.returncode != 0 or not database.is_file():
        last = (done.stderr or done.stdout).strip().splitlines()
        return _listed(path, f"nsys export failed ({done.returncode}): {last[-1] if last else 'no message'}")
    return reader.read(database, path)


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as stream:
        yield from stream
