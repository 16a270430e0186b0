"""PGLE profiles that are kept beside the runs: <output_dir>/pgle-profiles/KEY/ with profile.pbtxt and profile.json.

A run that makes one and proves that it was read leaves it here; a later run of the same program takes it into its own
folder, so that each run folder holds all that its result rests on. In a container the key goes on with the image's
size and date: another image of the same name compiles another program.
"""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks import files
from benchmarks.backend import Backend, GuidedByProfiles
from benchmarks.measuring.summary import Result
from benchmarks.runs.runfolder import KEPT_PROFILE, RunFolder
from benchmarks.values import Benchmark, PgleProfile, json_text

FOLDER = "pgle-profiles"
COSTS = "profile.pbtxt"
ABOUT = "profile.json"
REFUSED = "is of another program"  # what a worker says of a profile that is not of what it runs (profile_identity.py)


def place_of(output_dir: Path, key: str, environment: Mapping[str, str | None]) -> Path:
    """Where the profile of a key lies; `environment` is what a run writes down of what it runs in."""
    image = environment.get("image_digest") or environment.get("packages_sha256")
    return output_dir / FOLDER / (f"{key}-{hashlib.sha256(image.encode()).hexdigest()[:8]}" if image else key)


def with_kept_profile(
    benchmark: Benchmark, backend: Backend, output_dir: Path, environment: Mapping[str, str | None]
) -> Benchmark:
    """The benchmark, told of the profile that was made for it before, where one is kept and whole."""
    key = backend.profile_key(benchmark) if isinstance(backend, GuidedByProfiles) else None
    if key is None:
        return benchmark
    place = place_of(output_dir, key, environment)
    if not place.is_dir():
        return benchmark
    about, problem = _read(place, key)
    if about is None:
        print(f"note: the profile in {place} is not taken: {problem}; a new one is made", file=sys.stderr)
        return benchmark
    print(f"note: PGLE takes the profile of {about.made_in or 'an earlier run'}, kept in {place}", file=sys.stderr)
    return msgspec.structs.replace(benchmark, pgle_profile=key)


def take(folder: RunFolder, benchmark: Benchmark, output_dir: Path, environment: Mapping[str, str | None]) -> None:
    """The kept profile into the run's folder, before the run starts."""
    if benchmark.pgle_profile:
        shutil.copytree(place_of(output_dir, benchmark.pgle_profile, environment), folder.path / KEPT_PROFILE)


def keep(folder: RunFolder, result: Result) -> None:
    """The profile that a run has made and proven, or none that a worker has refused. Called when a run has ended."""
    environment = folder.provenance().get("environment", {})
    key = folder.benchmark().pgle_profile
    if key and any(REFUSED in reason for reason in result.reasons):
        place = place_of(folder.path.parent, key, environment)
        shutil.rmtree(place, ignore_errors=True)
        print(f"note: the kept profile {place} was refused, and is removed; the next run makes one", file=sys.stderr)
    seen = result.pgle.seen if result.pgle else None
    if seen is None or not seen.applied or seen.profile is None:
        return
    wanted = seen.profile
    made = (path.parent for path in sorted(folder.path.glob(f"attempt-*/*/{COSTS}")))  # each attempt makes one
    read = ((one, _read(one, wanted.key)[0]) for one in made)
    source = next((one for one, about in read if about is not None and about.sha256 == wanted.sha256), None)
    place = place_of(folder.path.parent, wanted.key, environment)
    if source is None or _read(place, wanted.key)[0] is not None:
        return
    place.parent.mkdir(exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    shutil.copyfile(source / COSTS, temporary / COSTS)
    (temporary / ABOUT).write_text(json_text(msgspec.structs.replace(wanted, made_in=folder.run_id)))
    temporary.chmod(0o755)
    shutil.rmtree(place, ignore_errors=True)
    try:
        temporary.rename(place)
    except OSError:  # another run was quicker
        shutil.rmtree(temporary)


def _read(place: Path, key: str) -> tuple[PgleProfile | None, str]:
    """A whole profile of this key, or why a folder is none."""
    try:
        about = files.read_json(place / ABOUT, PgleProfile)
        digest = hashlib.sha256((place / COSTS).read_bytes()).hexdigest()
    except (OSError, ValueError) as error:
        return None, str(error)
    if about.sha256 != digest:
        return None, f"{COSTS} is not what {ABOUT} says"
    return (about, "") if about.key == key else (None, f"it is of key {about.key}")
