"""PGLE profiles that are kept beside the runs: <output_dir>/pgle-profiles/KEY/ with profile.pbtxt and profile.json.

A run that makes one and proves that it was read leaves it here; a later run of the same program takes it into its own
folder, so that each run folder holds all that its result rests on. In a container the key goes on with the image's
size and date: another image of the same name compiles another program.
"""

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks import files
from benchmarks.backend import Backend, GuidedByProfiles
from benchmarks.errors import RequestError, RunError
from benchmarks.measuring.summary import Result
from benchmarks.runs.runfolder import KEPT_PROFILE, RunFolder
from benchmarks.values import Benchmark, PgleProfile, json_text
from launch.environments.selection import runtime_of
from launch.terminal.progress import note

FOLDER = "pgle-profiles"
COSTS = "profile.pbtxt"
ABOUT = "profile.json"
REFUSED = "is of another program"  # what a worker says of a profile that is not of what it runs (profile_identity.py)


def find(benchmark: Benchmark, backend: Backend, output_dir: Path) -> str:
    """Return the key of the complete profile that an earlier run left for a benchmark; empty if there is none."""
    key = backend.profile_key(benchmark) if isinstance(backend, GuidedByProfiles) else None
    identity = None
    with contextlib.suppress(RequestError):  # one of the refusals
        identity = runtime_of(benchmark, backend).identity()
    if key is None or identity is None:
        return ""
    place = _place_of(output_dir, key, identity)
    if not place.is_dir():
        return ""
    about, problem = _read(place, key)
    if about is None:
        note(f"the profile in {place} is not taken: {problem}; a new one is made")
        return ""
    note(f"PGLE takes the profile of {about.made_in or 'an earlier run'}, kept in {place}")
    return key


def take(folder: RunFolder, benchmark: Benchmark, origin: Mapping[str, str | None]) -> None:
    """Copy the kept profile into the run's folder, before the run starts."""
    place = _place_of(folder.path.parent, benchmark.instruments.pgle_profile, _identity_in(origin))
    try:
        shutil.copytree(place, folder.path / KEPT_PROFILE)
    except FileNotFoundError:
        raise RunError(
            "the kept profile that PGLE was to take is gone",
            where=str(place),
            why="another run has removed it, or the image is another since",
            next_command="the same command: it makes a new profile",
        ) from None


def _identity_in(origin: Mapping[str, str | None]) -> str:
    """Return a runtime's identity as a run has written it down."""
    return origin.get("image_digest") or origin.get("packages_sha256") or ""


def _place_of(output_dir: Path, key: str, identity: str) -> Path:
    return output_dir / FOLDER / (f"{key}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}" if identity else key)


def keep(folder: RunFolder, result: Result) -> None:
    """The profile that a run has made and proven, or none that a worker has refused. Called when a run has ended."""
    identity = _identity_in(folder.provenance().get("environment", {}))
    key = folder.benchmark().instruments.pgle_profile
    if key and any(REFUSED in reason for reason in result.reasons):
        place = _place_of(folder.path.parent, key, identity)
        shutil.rmtree(place, ignore_errors=True)
        note(f"the kept profile {place} was refused, and is removed; the next run makes one")
    seen = result.pgle.seen if result.pgle else None
    if seen is None or not seen.applied or seen.profile is None:
        return
    wanted = seen.profile
    made = (path.parent for path in sorted(folder.path.glob(f"attempt-*/*/{COSTS}")))  # each attempt makes one
    read = ((one, _read(one, wanted.key)[0]) for one in made)
    source = next((one for one, about in read if about is not None and about.sha256 == wanted.sha256), None)
    place = _place_of(folder.path.parent, wanted.key, identity)
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
