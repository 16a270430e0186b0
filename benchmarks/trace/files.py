"""Find the files that profilers wrote in a run or in another folder. No file is written."""

import contextlib
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RequestError, StepmarkError
from benchmarks.runs.runfolder import ATTEMPT, BENCHMARK, RunFolder

XPLANE, REPORT, SQLITE = ".xplane.pb", ".nsys-rep", ".sqlite"
NCCL_LOG = re.compile(r"nccl-.*\.log")
TRACE = re.compile(rf".*\.(?:xplane\.pb|nsys-rep|sqlite)|{NCCL_LOG.pattern}")
RANK = re.compile(r"rank-(\d+)")
PROFILE_PHASE = "profile"
NO_CALLS = (
    "NCCL was not used (one device, or no NVIDIA GPUs), NCCL_DEBUG or NCCL_DEBUG_FILE was overridden in the "
    "container or on the nodes, or the run ended too early"
)
SUMMARISE = "python launch/report.py trace"
PROFILED_RUN = "python launch/run.py --backend=jax --model=llama2_tiny --profile=xplane"


class ProfilerFiles(NamedTuple):
    """The files that profilers wrote in a run or in another folder."""

    run: RunFolder | None
    attempt: int | None
    phase: str | None
    is_measured: bool  # whether `phase` is the measured phase of the run
    files: list[Path]
    ranks: dict[Path, int | None]  # the rank of each xplane file, from the name of its folder
    notes: list[str]

    def of(self, ending: str) -> list[Path]:
        return [path for path in self.files if path.name.endswith(ending)]

    @property
    def nccl_logs(self) -> list[Path]:
        return [path for path in self.files if NCCL_LOG.fullmatch(path.name)]


def find_traces(place: Path) -> ProfilerFiles:
    """Find the traces in a file or folder. In a run, use the measured phase of the last attempt that has traces."""
    if not place.exists():
        raise RequestError("the file or folder does not exist", where=str(place))
    if not (place / BENCHMARK).is_file() and any(place.glob(f"*/{BENCHMARK}")):
        raise RequestError(
            "this folder has several runs",
            where=str(place),
            why="pass one of them",
            next_command=f"{SUMMARISE} {shlex.quote(str(next(place.glob(f'*/{BENCHMARK}')).parent))}",
        )
    run = next((RunFolder(path) for path in (place, *place.resolve().parents) if (path / BENCHMARK).is_file()), None)
    measured = None
    with contextlib.suppress(StepmarkError):
        measured = run.measured_phase().name if run else None
    places = [place]
    if run is not None and run.path == place and measured is not None:
        places = [run.phase_dir(measured, attempt) for attempt in reversed(run.attempts())]
    files = next(filter(None, map(_traces_in, places)), None)
    if files is None:
        raise _no_trace(place, run)
    # Keep the last session of each rank and host. The name of a session is the time of its process's clock.
    ranks = {path: _rank(path) for path in files}
    sessions = sorted((path for path in files if path.name.endswith(XPLANE)), key=lambda path: path.parent.name)
    last_session = {(ranks[path] or 0, path.name): path for path in sessions}
    xplanes = [last_session[key] for key in sorted(last_session)]
    parts = files[0].resolve().relative_to(run.path.resolve()).parts if run else ()
    attempt = ATTEMPT.fullmatch(parts[0]) if parts else None
    phase = parts[1] if attempt and len(parts) > 2 else None
    notes = ["phase profile: PGLE recorded this phase without overlap, so it is not the measured phase"]
    return ProfilerFiles(
        run=run,
        attempt=int(attempt[1]) if attempt else None,
        phase=phase,
        is_measured=phase is not None and phase == measured,
        files=[*xplanes, *(path for path in files if not path.name.endswith(XPLANE))],
        ranks={path: ranks[path] for path in xplanes},
        notes=notes if phase == PROFILE_PHASE else [],
    )


def _traces_in(place: Path) -> list[Path]:
    paths = [place] if place.is_file() else sorted(place.rglob("*"))
    return [path for path in paths if TRACE.fullmatch(path.name) and path.is_file()]


def _rank(path: Path) -> int | None:
    """Return the rank in the name of the nearest folder that contains the file, or None."""
    found = [match for part in path.resolve().parts[:-1] if (match := RANK.fullmatch(part))]
    return int(found[-1][1]) if found else None


def _no_trace(place: Path, run: RunFolder | None) -> RequestError:
    what, why = "found no trace", f"no *{XPLANE}, *{REPORT}, *{SQLITE} or nccl-*.log"
    if run is not None:
        what = "the run has no trace"
        with contextlib.suppress(StepmarkError):
            why = f"the run had --profile={run.benchmark().instruments.profile}, or ended too early for a profile"
    return RequestError(what, where=str(place), why=why, next_command=PROFILED_RUN)
