"""What profilers left in a place, and where there is nothing, what would make it. Only looks."""

import contextlib
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.backend import Profiles, find_backend
from benchmarks.errors import RequestError, StepmarkError
from benchmarks.runs.runfolder import BENCHMARK, RunFolder
from benchmarks.values import Benchmark

XPLANE, TRACE_JSON, REPORT, SQLITE = ".xplane.pb", ".trace.json.gz", ".nsys-rep", ".sqlite"
NCCL_LOG = re.compile(r"nccl-.*\.log")
ATTEMPT = re.compile(r"attempt-(\d+)")
RANK = re.compile(r"rank-(\d+)")
# As benchmarks/request/profiling.py names a rank's report: ..._JOB_NODE_LOCAL, or ..._JOB_nodeN_rankR
TASK_REPORT = re.compile(r"_(?:\d+|local)_(\d+)_(\d+)(?:-[a-z]+)?$")
RANK_REPORT = re.compile(r"_node\d+_rank(\d+)(?:-[a-z]+)?$")
MEASURED = "perf"
PHASE_OF_NAME = {"-prof": "profile", "-perf": MEASURED}  # of a report that was taken out of its folder
NO_CALLS = (
    "NCCL was not used (one device, or no NVIDIA GPUs), NCCL_DEBUG or NCCL_DEBUG_FILE was overridden in the "
    "container or on the nodes, or the run did not come so far"
)
PHASE_NOTES = {"profile": "recorded with overlap off, for the profile"}
SUMMARISE = "python launch/report.py trace"
EXAMPLE = f"{SUMMARISE} results/RUN"


class Spot(NamedTuple):
    """Where a path lies: below a run, by its parts there; elsewhere, by the folders around it."""

    run: RunFolder | None
    attempt: int | None
    phase: str | None
    rank: int | None  # of the folder that a rank's trace lies in


class Found(NamedTuple):
    """The files of profilers in a place: of one run, attempt, phase and profile where there are several."""

    run: RunFolder | None
    attempt: int | None
    phase: str | None
    is_measured: bool  # whether the steps of that phase are the run's
    files: list[Path]
    others: dict[Path, str]  # of other phases of the attempt, and of which
    ranks: dict[Path, int | None]  # of xplanes, by the folder
    notes: list[str]

    def of(self, ending: str, *, all_phases: bool = False) -> list[Path]:
        """The files of a kind; a log of NCCL is told by its whole name."""
        files = [*self.files, *self.others] if all_phases else self.files
        return [path for path in files if path.name.endswith(ending)]

    @property
    def nccl_logs(self) -> list[Path]:
        return [path for path in self.files if NCCL_LOG.fullmatch(path.name)]


def find_traces(place: Path) -> Found:
    """Of several attempts the last whose measured phase has traces, of several profiles in it the last."""
    if not place.exists():
        raise RequestError("there is no such file or folder", where=str(place), next_command=EXAMPLE)
    if place.is_file() and (not _is_trace(place) or place.name.endswith(TRACE_JSON)):
        raise RequestError(
            f"{place.name} is no profiler's file that can be read here",
            where=str(place),
            why=f"a *{XPLANE} (beside a *{TRACE_JSON}), a *{SQLITE} or *{REPORT} of Nsight Systems, a nccl-*.log, "
            "or a folder is expected",
            next_command=EXAMPLE,
        )
    paths = [place] if place.is_file() else sorted(_files(place))
    spots = {path: spot_of(path, place) for path in paths if _is_trace(path)}
    unreadable = {path: why for path in spots if (why := _why_unreadable(path))}
    notes = [f"{path.name} cannot be read ({why}) and is left out" for path, why in unreadable.items()]
    named = spot_of(place, place)
    run = run_inside(place, spots.values()) or named.run
    spots = {path: spot for path, spot in spots.items() if path not in unreadable}
    if not spots:
        for path, why in unreadable.items():
            raise RequestError(f"{path.name} cannot be read: {why}", where=str(path), next_command=EXAMPLE)
        raise no_trace(place, run)
    measured = _measured_phase(run, {spot.phase for spot in spots.values()})
    wanted = named.phase or measured
    attempts = {spot.attempt for spot in spots.values()}
    with_wanted = {spot.attempt for spot in spots.values() if spot.phase in (wanted, None)}
    attempt = max(with_wanted or attempts, key=lambda number: number or 0)
    if len(attempts) > 1:
        numbers = ", ".join(str(number) for number in sorted(number or 0 for number in attempts))
        notes.append(f"attempt {attempt} of those with traces: {numbers}")
    inside = [path for path, spot in spots.items() if spot.attempt == attempt]
    chosen = [path for path in inside if spots[path].phase in (wanted, None)]
    xplanes, sessions = _last_profile([path for path in chosen if path.name.endswith(XPLANE)], spots)
    if len(sessions) > 1:
        notes.append(f"the last of {len(sessions)} profiles; before it {', '.join(sessions[:-1])}")
    beside = {path.parent for path in xplanes}
    of_earlier = {path for path in chosen if path.name.endswith(TRACE_JSON) and beside and path.parent not in beside}
    rest = [path for path in chosen if not path.name.endswith(XPLANE) and path not in of_earlier]
    return Found(
        run=run,
        attempt=attempt,
        phase=wanted,
        is_measured=wanted == measured and wanted not in PHASE_NOTES,
        files=[*xplanes, *rest],
        others={path: spots[path].phase or "" for path in inside if path not in chosen},
        ranks={path: spots[path].rank for path in xplanes},
        notes=notes,
    )


def _files(place: Path) -> Iterator[Path]:
    """Every file below a folder. What may not be read is passed over: the traces are not there."""
    for folder, _, names in os.walk(place):
        yield from (Path(folder) / name for name in names)


def _is_trace(path: Path) -> bool:
    return path.name.endswith((XPLANE, TRACE_JSON, REPORT, SQLITE)) or NCCL_LOG.fullmatch(path.name) is not None


def _why_unreadable(path: Path) -> str:
    """Empty where the file can be opened. What is no file at all (a pipe) would be waited for."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "it is no ordinary file"
        path.open("rb").close()
    except OSError as error:
        return (error.strerror or str(error)) if path.exists() or not path.is_symlink() else "a link to nothing"
    return ""


# --- where a file lies --------------------------------------------------------------------------


def spot_of(path: Path, place: Path) -> Spot:
    """The attempt, the phase and the rank that a path belongs to; `place` is what was named, `path` lies in it."""
    run, parts = _in_run(path)
    if run is None:
        parts = path.relative_to(place).parts if place.is_dir() and path != place else path.absolute().parts
    numbers = [number for number, part in enumerate(parts) if ATTEMPT.fullmatch(part)]
    folders = parts if path.is_dir() else parts[:-1]
    first = (numbers[0] if run else numbers[-1]) if numbers else None
    phase, attempt = None, None
    if first is not None and (match := ATTEMPT.fullmatch(parts[first])):
        attempt = int(match[1])
        phase = folders[first + 1] if len(folders) > first + 1 else None
    if phase is None and path.name.endswith((REPORT, SQLITE)):
        phase = next((name for end, name in PHASE_OF_NAME.items() if path.stem.endswith(end)), None)
    ranks = [int(match[1]) for part in folders if (match := RANK.fullmatch(part))]
    return Spot(run, attempt, phase, ranks[-1] if ranks else None)


def _in_run(path: Path) -> tuple[RunFolder | None, tuple[str, ...]]:
    """The run that a path is, or lies in, and the path below it; through a link, that of what it leads to."""
    for whole in (path.absolute(), path.resolve()):
        for folder in (whole, *whole.parents):
            if (folder / BENCHMARK).is_file():
                return RunFolder(folder), whole.relative_to(folder).parts
    return None, ()


def run_inside(place: Path, spots: Iterable[Spot]) -> RunFolder | None:
    """The one run below a folder that the traces are of; None where they are of no run."""
    folders = {spot.run.path: spot.run for spot in spots if spot.run is not None}
    if len(folders) > 1:
        raise RequestError(
            f"{len(folders)} runs below this folder have traces",
            where=str(place),
            why="one at a time is summarised",
            next_command=f"{SUMMARISE} {shlex.quote(str(max(folders)))}",
        )
    return next(iter(folders.values()), None)


def _measured_phase(run: RunFolder | None, phases: set[str | None]) -> str | None:
    """The phase whose steps are the result; of a run that cannot be asked, what is called as such phases are."""
    if run is not None:
        with contextlib.suppress(StepmarkError):
            return run.measured_phase().name
    known = {phase for phase in phases if phase is not None}
    return MEASURED if MEASURED in known else max(known, default=None)


def phase_note(phase: str) -> str:
    """Why the traces of a phase other than the measured one say nothing of the run's speed."""
    how = PHASE_NOTES.get(phase)
    return f"phase {phase}: {f'{how}; ' if how else ''}not the run that was measured"


def _last_profile(xplanes: Sequence[Path], spots: Mapping[Path, Spot]) -> tuple[list[Path], list[str]]:
    """The traces of the last profile, and the names of all.

    Each process names its session by its own clock, so sessions that hold different hosts or ranks are one profile;
    where a host and rank comes again, another one begins.
    """
    profiles: list[dict[tuple[int, str], Path]] = []
    names: list[str] = []
    for path in sorted(xplanes, key=lambda path: (path.parent.name, str(path))):
        key = (spots[path].rank or 0, path.name)
        if not profiles or key in profiles[-1]:
            profiles.append({})
            names.append(path.parent.name)
        profiles[-1][key] = path
    return ([profiles[-1][key] for key in sorted(profiles[-1])] if profiles else []), names


def labels(found: Found, tasks_per_node: int | None) -> dict[Path, str]:
    """What tells the ranks of a host apart: ` rank 3`, or nothing where a trace's place and name do not say it."""
    several = any(rank is not None for rank in found.ranks.values())  # rank 0 has no folder of its own
    said = {path: f" rank {rank or 0}" for path, rank in found.ranks.items() if several}
    for path in (*found.of(REPORT), *found.of(SQLITE)):
        if match := RANK_REPORT.search(path.stem):
            said[path] = f" rank {match[1]}"
        elif match := TASK_REPORT.search(path.stem):
            node, local = int(match[1]), int(match[2])
            known = tasks_per_node is not None
            said[path] = f" rank {node * (tasks_per_node or 0) + local}" if known else f" node {node} task {local}"
    return said


# --- where there is none ------------------------------------------------------------------------


def no_trace(place: Path, folder: RunFolder | None) -> RequestError:
    if folder is None:
        return RequestError(
            "there is no trace below this folder",
            where=str(place),
            why=f"no *{XPLANE}, *{REPORT}, *{SQLITE} or nccl-*.log; and it is no run's folder",
            next_command="python launch/run.py ... --profile=xplane makes one",
        )
    with contextlib.suppress(StepmarkError):
        benchmark = folder.benchmark()
        return RequestError(
            "the run has no trace",
            where=str(place),
            why=_why_no_trace(folder, benchmark),
            next_command=_profiling_command(benchmark),
        )
    return RequestError("the run has no trace, and its request cannot be read", where=str(place / BENCHMARK))


def _why_no_trace(folder: RunFolder, benchmark: Benchmark) -> str:
    if benchmark.profile == "none":
        return "no profiler ran beside it (--profile=none)"
    status = "has no result"
    with contextlib.suppress(StepmarkError):
        status = f"is {folder.stored_result().status}"
    stop = f"; the profiler was to stop after step {benchmark.profiling.stop_step}" if benchmark.profiling else ""
    nccl = f"; {NO_CALLS}" if benchmark.profile == "nccl" else ""
    return f"--profile={benchmark.profile} was asked for, and the run {status}{stop}{nccl}"


def _profiling_command(benchmark: Benchmark) -> str:
    """The same request with a profiler."""
    profile = "xplane" if benchmark.profile == "none" else benchmark.profile
    with contextlib.suppress(StepmarkError):
        backend = find_backend(benchmark.backend)
        offered = backend.profiles if isinstance(backend, Profiles) else ()
        profile = next((one for one in (profile, "xplane", "nsys", "nccl") if one in offered), profile)
    asked = {
        "backend": benchmark.backend,
        "model": benchmark.model.name,
        "task": benchmark.task,
        "dtype": benchmark.dtype,
        "hardware": benchmark.hardware.name,
        "gpus": benchmark.gpus,
        "site": benchmark.site.name,
        "steps": benchmark.steps,
    }
    flags = [f"--{name}={value}" for name, value in asked.items()]
    flags += [f"--set={name}={value}" for name, value in benchmark.overrides.items()]
    return shlex.join(["python", "launch/run.py", *flags, f"--profile={profile}"])
