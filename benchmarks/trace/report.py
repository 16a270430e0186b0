"""Make the report of `report.py trace`: a summary of each trace, their mean, Stepmark's step time, and NCCL's calls.

The traces are in a run folder, in any other folder, or in one file. No file there is changed.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks import statistics
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, StepmarkError
from benchmarks.runs.runfolder import RESULT, RunFolder
from benchmarks.text import title
from benchmarks.trace.files import NO_CALLS, PROFILED_RUN, REPORT, SQLITE, XPLANE, ProfilerFiles, find_traces
from benchmarks.trace.kinds import read_kinds
from benchmarks.trace.nccl import NcclCalls, read_calls
from benchmarks.trace.nsys import read_nsys
from benchmarks.trace.summary import DeviceTimes, HostSummary, mean_times, summarise
from benchmarks.trace.xplane import read_xplane
from benchmarks.values import PROFILER, Benchmark, Step, Value

SCHEMA_VERSION = 3


class Comparison(Value, frozen=True):
    """The step time in the trace and by Stepmark's clock, over the same steps or over all profiled steps."""

    trace_seconds_per_step: float
    clock_seconds_per_step: float
    difference: float  # trace_seconds_per_step / clock_seconds_per_step - 1


class TraceFile(Value, frozen=True):
    """One file of a profiler with its summary, or with the reason why it has no summary."""

    path: str
    format: Literal["xplane", "nsys"]
    bytes: int
    summary: HostSummary | None
    why_not: str = ""


class TraceReport(Value, frozen=True):
    """The report of `report.py trace`. Unknown values are null or empty."""

    place: str
    title: str
    attempt: int | None
    phase: str | None
    files: list[TraceFile]
    mean: DeviceTimes | None  # the mean over all hosts and devices
    comparison: Comparison | None
    nccl: NcclCalls | None
    notes: list[str]
    schema_version: int = SCHEMA_VERSION

    @property
    def summaries(self) -> list[HostSummary]:
        return [file.summary for file in self.files if file.summary is not None]

    @property
    def is_whole_trace(self) -> bool:
        """Return whether the times cover the whole trace instead of one step."""
        return any(summary.window.is_whole_trace for summary in self.summaries)


class ProfiledRun(NamedTuple):
    """The benchmark and the steps of the run that was profiled."""

    benchmark: Benchmark
    steps: list[Step]  # the steps of rank 0, whose times are compared with the trace


def trace_report(place: Path, export: Callable[[Path], Path]) -> TraceReport:
    """Return the report of the traces in a file or folder. Raise RequestError if no trace can be read.

    `export` converts a report of Nsight Systems to an SQLite file. It raises RequestError if it cannot.
    """
    found = find_traces(place)
    notes = found.notes
    run = _read_run(found.run, found.attempt or 1, notes) if found.run else None
    files = list(_read_files(found, run, export))
    nccl = read_calls((path.stem, _lines(path)) for path in found.nccl_logs) if found.nccl_logs else None
    means = [file.summary.mean for file in files if file.summary is not None]
    mean = mean_times(means, "all") if means else None
    if not found.of(REPORT) and mean is None and (nccl is None or not nccl.rows):
        first = files[0] if files else None
        raise RequestError(
            first.why_not if first else "the trace has no NCCL call",
            where=first.path if first else str(found.files[0]),
            why="" if first else NO_CALLS,
            next_command=PROFILED_RUN if first else "",
        )
    if run is not None and mean is not None and mean.devices < run.benchmark.gpus:
        notes.append(f"the traces have {mean.devices} of {run.benchmark.gpus} devices")
    summary = next((file.summary for file in files if file.summary is not None), None)
    return TraceReport(
        place=str(place),
        title=title(run.benchmark) if run else str(place),
        attempt=found.attempt,
        phase=found.phase,
        files=files,
        mean=mean,
        comparison=compare(summary, run.steps) if run and summary and found.is_measured else None,
        nccl=nccl,
        notes=notes,
    )


def compare(summary: HostSummary, steps: Sequence[Step]) -> Comparison | None:
    """Compare the step time of the trace with that in steps.jsonl; return None if no step can be compared."""
    window = summary.window
    timed = {step.step: step.seconds for step in steps if step.seconds is not None}
    first, last = window.first_step, window.last_step
    same = [seconds for number, seconds in timed.items() if first and last and first <= number <= last]
    profiled = [step.seconds for step in steps if step.seconds is not None and step.excluded_because == PROFILER]
    # Use the mean over the same steps. If the trace does not number its steps, use the median of all profiled steps.
    clock = statistics.mean(same) if same else statistics.median(profiled)
    if window.is_whole_trace or not clock:
        return None
    theirs = summary.mean.seconds_per_step
    return Comparison(trace_seconds_per_step=theirs, clock_seconds_per_step=clock, difference=theirs / clock - 1)


# --- reading ------------------------------------------------------------------------------------


def _read_run(folder: RunFolder, attempt: int, notes: list[str]) -> ProfiledRun | None:
    """Return the profiled run; None if its request cannot be read, so that its trace can still be shown."""
    try:
        benchmark = folder.benchmark()
    except StepmarkError as error:
        notes.append(error.what)
        return None
    steps: list[Step] = []
    if (folder.path / RESULT).is_file():
        steps = [step for step in folder.each_stored_step() if step.attempt == attempt and step.rank == 0]
    else:
        notes.append("the run has no result to compare with: it was interrupted or has not ended")
    return ProfiledRun(benchmark, steps)


def _read_files(found: ProfilerFiles, run: ProfiledRun | None, export: Callable[[Path], Path]) -> Iterator[TraceFile]:
    """Yield each file with its summary. A report of Nsight Systems that has no export yet is exported first."""
    kinds = read_kinds(Configs().root)
    several_ranks = any(rank is not None for rank in found.ranks.values())  # rank 0 has no folder for itself
    asked = run.benchmark.instruments.profiling if run and found.is_measured else None
    on_gpu = run is not None and run.benchmark.hardware.kind == "gpu"
    exported = {path.with_suffix("") for path in found.of(SQLITE)}
    reports = [path for path in found.of(REPORT) if path.with_suffix("") not in exported]
    for path in (*found.of(XPLANE), *found.of(SQLITE), *reports):
        summary, why_not = None, ""
        try:
            if path.name.endswith(XPLANE):
                trace = read_xplane(path.read_bytes(), path)
                label = f" rank {found.ranks[path] or 0}" if several_ranks else ""
            else:
                trace = read_nsys(export(path) if path in reports else path)
                label = f" {path.stem}"  # the name of the file contains the rank
            trace = dataclasses.replace(trace, host=trace.host + label)
            # CUDA's profiler calls limit what Nsight Systems records. Without a GPU, it records the whole program.
            summary = summarise(trace, kinds, asked if on_gpu or path.name.endswith(XPLANE) else None)
            why_not = "" if summary else "the trace has no device operation"
        except RequestError as error:
            why_not = f"{error.what}: {error.why}" if error.why else error.what
        except OSError as error:
            why_not = f"{path.name} cannot be read: {error.strerror or error}"
        yield TraceFile(
            path=str(path),
            format="xplane" if path.name.endswith(XPLANE) else "nsys",
            bytes=path.stat().st_size if path.exists() else 0,
            summary=summary,
            why_not=why_not,
        )


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as stream:
        yield from stream
