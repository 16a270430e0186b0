"""What profilers left in a place, and where there is nothing, what would make it. Only looks."""

import contextlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.backend import find_backend
from benchmarks.errors import RequestError, StepmarkError
from benchmarks.runfolder import BENCHMARK, RunFolder
from benchmarks.values import Benchmark

XPLANE, TRACE_JSON, REPORT, SQLITE = ".xplane.pb", ".trace.json.gz", ".nsys-rep", ".sqlite"
NCCL_LOG = re.compile(r"nccl-.*\.log")
ATTEMPT = re.compile(r"attempt-(\d+)")
EXAMPLE = "python launch/report.py --trace results/RUN"


class Found(NamedTuple):
    """The files of profilers in a place, of one run, one attempt and one profile where there are several."""

    run: RunFolder | None
    attempt: int | None
    xplanes: list[Path]
    trace_jsons: list[Path]
    reports: list[Path]
    databases: list[Path]
    nccl_logs: list[Path]
    notes: list[str]

    @property
    def everything(self) -> list[Path]:
        return [*self.xplanes, *self.trace_jsons, *self.reports, *self.databases, *self.nccl_logs]


def find_traces(place: Path) -> Found:
    """Of several attempts the last that has traces, of several profiles in it the last."""
    paths = [place] if place.is_file() else sorted(_files(place))
    if place.is_file() and (not _is_trace(place) or place.name.endswith(TRACE_JSON)):
        raise RequestError(
            f"{place.name} is no profiler's file that can be read here",
            where=f"--trace={place}",
            why=f"a *{XPLANE} (beside a *{TRACE_JSON}), a *{SQLITE} or *{REPORT} of Nsight Systems, a nccl-*.log, "
            "or a folder is expected",
            next_command=EXAMPLE,
        )
    paths = [path for path in paths if _is_trace(path)]
    run = run_inside(place, paths)
    attempts = {_attempt_of(path, place) for path in paths}
    attempt = max(attempts, key=lambda number: number or 0, default=None)
    chosen = [path for path in paths if _attempt_of(path, place) == attempt]
    notes = [f"attempt {attempt} of those with traces: {_numbers(attempts)}"] if len(attempts) > 1 else []
    sessions = sorted({path.parent for path in chosen if path.name.endswith(XPLANE)}, key=lambda path: path.name)
    if len(sessions) > 1:
        notes.append(f"the last of {len(sessions)} profiles; before it {', '.join(p.name for p in sessions[:-1])}")
    last = sessions[-1] if sessions else None
    return Found(
        run=run or run_folder_of(place),
        attempt=attempt,
        xplanes=[path for path in chosen if path.name.endswith(XPLANE) and path.parent == last],
        trace_jsons=[path for path in chosen if path.name.endswith(TRACE_JSON) and last in (None, path.parent)],
        reports=[path for path in chosen if path.name.endswith(REPORT)],
        databases=[path for path in chosen if path.name.endswith(SQLITE)],
        nccl_logs=[path for path in chosen if NCCL_LOG.fullmatch(path.name)],
        notes=notes,
    )


def _files(place: Path) -> Iterator[Path]:
    """Every file below a folder. What may not be read is passed over: the traces are not there."""
    for folder, _, names in os.walk(place):
        yield from (Path(folder) / name for name in names)


def _is_trace(path: Path) -> bool:
    return path.name.endswith((XPLANE, TRACE_JSON, REPORT, SQLITE)) or NCCL_LOG.fullmatch(path.name) is not None


def _attempt_of(path: Path, place: Path) -> int | None:
    """The attempt that a file belongs to: the folder it lies in that is called so, nearest to the run."""
    parts = path.relative_to(place).parts if place.is_dir() and path != place else path.resolve().parts
    matches = [ATTEMPT.fullmatch(part) for part in parts]
    return next((int(match[1]) for match in matches if match), None)


def _numbers(attempts: set[int | None]) -> str:
    return ", ".join(str(number) for number in sorted(number or 0 for number in attempts))


def run_inside(place: Path, paths: Iterable[Path]) -> RunFolder | None:
    """The one run below a folder that the traces are of; None where they are of no run."""
    folders = {run.path: run for run in map(run_folder_of, paths) if run is not None}
    if len(folders) > 1:
        raise RequestError(
            f"{len(folders)} runs below this folder have traces",
            where=f"--trace={place}",
            why="one at a time is summarised",
            next_command=f"python launch/report.py --trace {shlex.quote(str(max(folders)))}",
        )
    return next(iter(folders.values()), None)


def run_folder_of(place: Path) -> RunFolder | None:
    """The run that a place is, or lies in."""
    around = [place, *place.resolve().parents]
    return next((RunFolder(folder) for folder in around if (folder / BENCHMARK).is_file()), None)


def no_trace(place: Path, folder: RunFolder | None) -> RequestError:
    if folder is None:
        return RequestError(
            "there is no trace below this folder",
            where=f"--trace={place}",
            why=f"no *{XPLANE}, *{REPORT}, *{SQLITE} or nccl-*.log; and it is no run's folder",
            next_command="python launch/run.py ... --profile=xplane makes one",
        )
    with contextlib.suppress(StepmarkError):
        benchmark = folder.benchmark()
        return RequestError(
            "the run has no trace",
            where=str(place),
            why=_whyno_trace(folder, benchmark),
            next_command=_profiling_command(benchmark),
        )
    return RequestError("the run has no trace, and its request cannot be read", where=str(place / BENCHMARK))


def _whyno_trace(folder: RunFolder, benchmark: Benchmark) -> str:
    if benchmark.profile == "none":
        return "no profiler ran beside it (--profile=none)"
    ended = "it may not have come so far" if benchmark.profiling is None else (
        f"the profiler was to stop after step {benchmark.profiling.stop_step}"
    )  # fmt: skip
    with contextlib.suppress(StepmarkError):
        result = folder.stored_result()
        return f"--profile={benchmark.profile} was asked for, the run is {result.status}: {ended}"
    return f"--profile={benchmark.profile} was asked for, and the run has no result: {ended}"


def _profiling_command(benchmark: Benchmark) -> str:
    """The same request with a profiler; what it overrode is named in benchmark.json."""
    profile = benchmark.profile
    if profile == "none":
        with contextlib.suppress(StepmarkError):
            offered = find_backend(benchmark.backend).profiles
            profile = next((kind for kind in ("xplane", "nsys", "nccl") if kind in offered), "xplane")
    words = [
        f"--backend={benchmark.backend}",
        f"--model={benchmark.model.name}",
        f"--task={benchmark.task}",
        f"--dtype={benchmark.dtype}",
        f"--hardware={benchmark.hardware.name}",
        f"--gpus={benchmark.gpus}",
        f"--site={benchmark.site.name}",
        f"--steps={benchmark.steps}",
        *(f"--set={name}={value}" for name, value in benchmark.overrides.items()),
        f"--profile={'xplane' if profile == 'none' else profile}",
    ]
    return "python launch/run.py " + " ".join(map(shlex.quote, words))
