"""The 5th and the 95th percentile of a run's counted steps, from its steps.jsonl; read once, then kept in `.state/`.

What is kept is of a result: where a run's result is made anew, its steps are read again.
"""

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.dashboards.series import Band, band_of
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.runfolder import STEPS
from benchmarks.values import Step
from launch.dashboards.folders import write_whole

FILE = "bands.json"
SAID_EVERY = 2000
Kept = dict[str, tuple[str, Band]]  # by the run's path: of which result, and its band
_DECODER = msgspec.json.Decoder(Step)


def bands(
    output_dir: Path, state: Path, entries: Sequence[FinishedRun], progress: Callable[[int, int], None] | None = None
) -> tuple[dict[str, Band], dict[str, str]]:
    """By the path of each run; and why some have none."""
    kept = _read(state / FILE)
    missing: dict[str, str] = {}
    unread = [run for run in entries if run.path not in kept or kept[run.path][0] != _result_of(run)]
    for number, run in enumerate(unread, start=1):
        band = _band_of(output_dir / run.path / STEPS)
        if isinstance(band, str):
            missing[run.path] = band
            kept.pop(run.path, None)
        else:
            kept[run.path] = (_result_of(run), band)
        if progress is not None and (number % SAID_EVERY == 0 or number == len(unread)):
            progress(number, len(unread))
    if len(unread) > len(missing):
        write_whole(state / FILE, msgspec.json.encode(kept))
    return {run.path: kept[run.path][1] for run in entries if run.path in kept}, missing


def _read(path: Path) -> Kept:
    """A file that is damaged is made anew: all of it can be read again."""
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    return {}


def _result_of(entry: FinishedRun) -> str:
    """What tells one result of a run from another: its figures."""
    figures = (entry.run_id, entry.counted, entry.seconds_per_step, entry.seconds_mean)
    return hashlib.sha256(repr(figures).encode()).hexdigest()[:16]


def _band_of(path: Path) -> Band | str:
    """Or why there is none."""
    if path.exists() and not path.is_file():
        return f"{STEPS} is no file"  # a pipe would be waited for
    try:
        steps = [_DECODER.decode(line) for line in path.read_bytes().splitlines()]
    except OSError as error:
        return f"{STEPS}: {error.strerror}"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"{STEPS} cannot be read: {error}"
    return band_of(steps) or f"{STEPS} has no counted step"
