"""What profilers left in a place: of one run, its last attempt with traces, one phase and one profile. Only looks."""

import contextlib
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RequestError, StepmarkError
from benchmarks.runs.runfolder import BENCHMARK, RunFolder

XPLANE, REPORT, SQLITE = ".xplane.pb", ".nsys-rep", ".sqlite"
NCCL_LOG = re.compile(r"nccl-.*\.log")
TRACE = re.compile(rf".*\.(?:xplane\.pb|nsys-rep|sqlite)|{NCCL_LOG.pattern}")
ATTEMPT = re.compile(r"attempt-(\d+)")
RANK = re.compile(r"rank-(\d+)")
# As benchmarks/request/profiling.py names a rank's report: ..._JOB_NODE_LOCAL, or ..._JOB_nodeN_rankR
TASK_REPORT = re.compile(r"_(?:\d+|local)_(\d+)_(\d+)(?:-[a-z]+)?$")
RANK_REPORT = re.compile(r"_node\d+_rank(\d+)(?:-[a-z]+)?$")
PROFILE_PHASE = "profile"
NO_CALLS = (
    "NCCL was not used (one device, or no NVIDIA GPUs), NCCL_DEBUG or NCCL_DEBUG_FILE was overridden in the "
    "container or on the nodes, or the run did not come so far"
)
SUMMARISE = "python launch/report.py trace"
PROFILED_RUN = "python launch/run.py --backend=jax --model=llama2_tiny --profile=xplane"


class Spot(NamedTuple):
    """The run, the attempt, the phase and the rank that a path belongs to, by the folders around it."""

    run: Path | None
    attempt: int
    phase: str | None
    rank: int | None


class Found(NamedTuple):
    """The files of profilers in a place."""

    run: RunFolder | None
    attempt: int | None
    phase: str | None
    is_measured: bool  # whether the steps of that phase are the run's
    files: list[Path]
    ranks: dict[Path, int | None]  # of xplanes, by the folder
    notes: list[str]

    def of(self, ending: str) -> list[Path]:
        return [path for path in self.files if path.name.endswith(ending)]

    @property
    def nccl_logs(self) -> list[Path]:
        return [path for path in self.files if NCCL_LOG.fullmatch(path.name)]


def find_traces(place: Path) -> Found:
    """Of several attempts the last whose measured phase has traces, of several profiles in it the last."""
    if not place.exists():
        example = f"{SUMMARISE} results/RUN"
        raise RequestError("there is no such file or folder", where=str(place), next_command=example)
    paths = [place] if place.is_file() else sorted(place.rglob("*"))
    spots = {path: _spot_of(path) for path in paths if TRACE.fullmatch(path.name) and path.is_file()}
    named = _spot_of(place)
    runs = {spot.run for spot in (*spots.values(), named) if spot.run}
    if len(runs) > 1:
        raise RequestError(
            f"{len(runs)} runs below this folder have traces",
            where=str(place),
            why="one at a time is summarised",
            next_command=f"{SUMMARISE} {shlex.quote(str(max(runs)))}",
        )
    run = next((RunFolder(path) for path in runs), None)
    if not spots:
        raise _no_trace(place, run)
    measured = None
    with contextlib.suppress(StepmarkError):
        measured = run.measured_phase().name if run else None
    wanted = named.phase or measured
    chosen = {path: spot for path, spot in spots.items() if wanted is None or spot.phase in (wanted, None)}
    if not chosen:
        there = min(spots)
        raise RequestError(
            f"phase {wanted}, which was measured, has no trace",
            where=str(place),
            why=f"the traces are of phase {spots[there].phase}",
            next_command=f"{SUMMARISE} {shlex.quote(str(there.parent))}",
        )
    attempt, attempts = max(spot.attempt for spot in chosen.values()), {spot.attempt for spot in spots.values()}
    last = [path for path, spot in chosen.items() if spot.attempt == attempt]
    # Of each rank and host its last session; each process names its session by its own clock.
    sessions = sorted((path for path in last if path.name.endswith(XPLANE)), key=lambda path: path.parent.name)
    last_session = {(spots[path].rank or 0, path.name): path for path in sessions}
    xplanes = [last_session[key] for key in sorted(last_session)]
    notes = []
    if len(attempts) > 1:
        notes.append(f"attempt {attempt} of those with traces: {', '.join(map(str, sorted(attempts)))}")
    if wanted == PROFILE_PHASE:
        notes.append("phase profile: recorded with overlap off, for the profile; not the run that was measured")
    return Found(
        run=run,
        attempt=attempt or None,
        phase=wanted,
        is_measured=wanted == measured and wanted != PROFILE_PHASE,
        files=[*xplanes, *(path for path in last if not path.name.endswith(XPLANE))],
        ranks={path: spots[path].rank for path in xplanes},
        notes=notes,
    )


def _spot_of(path: Path) -> Spot:
    """Through a link, where the file it leads to lies."""
    whole = path.resolve()
    run = next((folder for folder in (whole, *whole.parents) if (folder / BENCHMARK).is_file()), None)
    parts = whole.relative_to(run).parts if run else ()
    folders = parts if path.is_dir() else parts[:-1]
    attempt = ATTEMPT.fullmatch(parts[0]) if parts else None
    ranks = [int(match[1]) for part in folders if (match := RANK.fullmatch(part))]
    return Spot(
        run=run,
        attempt=int(attempt[1]) if attempt else 0,
        phase=folders[1] if attempt and len(folders) > 1 else None,
        rank=ranks[-1] if ranks else None,
    )


def labels(found: Found, tasks_per_node: int | None) -> dict[Path, str]:
    """What tells the ranks of a host apart: ` rank 3`, or nothing where a trace's place and name do not say it."""
    several = any(rank is not None for rank in found.ranks.values())  # rank 0 has no folder of its own
    known = {path: f" rank {rank or 0}" for path, rank in found.ranks.items() if several}
    for path in (*found.of(REPORT), *found.of(SQLITE)):
        if match := RANK_REPORT.search(path.stem):
            known[path] = f" rank {match[1]}"
        elif match := TASK_REPORT.search(path.stem):
            node, local = int(match[1]), int(match[2])
            known[path] = f" rank {node * tasks_per_node + local}" if tasks_per_node else f" node {node} task {local}"
    return known


def _no_trace(place: Path, run: RunFolder | None) -> RequestError:
    what, why = "there is no trace here", f"no *{XPLANE}, *{REPORT}, *{SQLITE} or nccl-*.log"
    if run is not None:
        what = "the run has no trace"
        with contextlib.suppress(StepmarkError):
            profile = run.benchmark().instruments.profile
            ended_early = f"it ran with --profile={profile}, and may have ended before the profiler wrote anything"
            why = {"none": "no profiler ran with it (--profile=none)", "nccl": NO_CALLS}.get(profile, ended_early)
    return RequestError(what, where=str(place), why=why, next_command=PROFILED_RUN)
