"""PGLE profiles that are kept beside the runs: <output_dir>/pgle-profiles/KEY/ with profile.pbtxt and profile.json.

A run that makes one and proves that it was read leaves it here; a later run of the same program takes it into its own
folder, so that each run folder holds all that its result rests on.
"""

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.backend import Backend
from benchmarks.runfolder import KEPT_PROFILE, RunFolder
from benchmarks.summary import Result
from benchmarks.values import Benchmark, PgleProfile

FOLDER = "pgle-profiles"
COSTS = "profile.pbtxt"
ABOUT = "profile.json"


def with_kept_profile(benchmark: Benchmark, backend: Backend, output_dir: Path) -> Benchmark:
    """The benchmark, told of the profile that was made for it before, where one is kept and whole."""
    key = backend.profile_key(benchmark)
    if key is None:
        return benchmark
    place = output_dir / FOLDER / key
    if not place.is_dir():
        return benchmark
    problem = _problem(place, key)
    if problem:
        print(f"note: the profile in {place} is not taken: {problem}; a new one is made", file=sys.stderr)
        return benchmark
    return msgspec.structs.replace(benchmark, pgle_profile=key)


def take(folder: RunFolder, benchmark: Benchmark, output_dir: Path) -> None:
    """The kept profile into the run's folder, before the run starts."""
    if benchmark.pgle_profile:
        shutil.copytree(output_dir / FOLDER / benchmark.pgle_profile, folder.path / KEPT_PROFILE)


def keep(folder: RunFolder, result: Result) -> None:
    """The profile that a run has made, where the run proves that it was of use. One that is whole stays as it is."""
    if result.pgle is None or not result.pgle.seen.applied or result.pgle.seen.profile is None:
        return
    key = result.pgle.seen.profile.key
    made = next(
        (path.parent for path in folder.path.glob(f"attempt-*/*/{COSTS}") if not _problem(path.parent, key)), None
    )
    place = folder.path.parent / FOLDER / key
    if made is None or (place.is_dir() and not _problem(place, key)):
        return
    place.parent.mkdir(exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    for name in (COSTS, ABOUT):
        shutil.copyfile(made / name, temporary / name)
    temporary.chmod(0o755)
    shutil.rmtree(place, ignore_errors=True)
    try:
        temporary.rename(place)
    except OSError:  # another run was quicker
        shutil.rmtree(temporary)


def _problem(place: Path, key: str) -> str | None:
    """Why a folder is no whole profile of this key."""
    try:
        about = msgspec.json.decode((place / ABOUT).read_bytes(), type=PgleProfile)
        digest = hashlib.sha256((place / COSTS).read_bytes()).hexdigest()
    except (OSError, ValueError) as error:
        return str(error)
    if about.sha256 != digest:
        return f"{COSTS} is not what {ABOUT} says"
    return None if about.key == key else f"it is of key {about.key}"
