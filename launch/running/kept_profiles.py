"""Keep PGLE profiles for later runs, as profile.pbtxt and profile.json in <output_dir>/pgle-profiles/KEY/.

A run that makes a profile stores it here, after it has proved that XLA used the profile. A later run of the same
program copies the profile, so that each run folder is complete. For a container, KEY includes a digest of the image,
because another image with the same name may compile another program.
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
from benchmarks.errors import RequestError
from benchmarks.measuring.summary import Result
from benchmarks.runs.runfolder import KEPT_PROFILE, RunFolder
from benchmarks.values import Benchmark, PgleProfile, json_text
from launch.environments.selection import runtime_of
from launch.terminal.progress import note

FOLDER = "pgle-profiles"
COSTS = "profile.pbtxt"
ABOUT = "profile.json"
REFUSED = "the profile cannot be used"  # words of the worker's message (profile_identity.py)


def find(benchmark: Benchmark, backend: Backend, output_dir: Path) -> str:
    """Return the key of the profile that an earlier run stored for a benchmark; empty if there is no such profile."""
    key = backend.profile_key(benchmark) if isinstance(backend, GuidedByProfiles) else None
    identity = None
    with contextlib.suppress(RequestError):  # the refusals report this error
        identity = runtime_of(benchmark, backend).identity()
    if key is None or identity is None:
        return ""
    place = _place_of(output_dir, key, identity)
    try:
        about = files.read_json(place / ABOUT, PgleProfile)
    except (OSError, ValueError):
        return ""
    note(f"PGLE uses the profile of {about.made_in or 'an earlier run'} from {place}")
    return key


def take(folder: RunFolder, benchmark: Benchmark, origin: Mapping[str, str | None]) -> None:
    """Copy the kept profile into the run's folder, before the run starts."""
    place = _place_of(folder.path.parent, benchmark.instruments.pgle_profile, _identity_in(origin))
    shutil.copytree(place, folder.path / KEPT_PROFILE)


def _identity_in(origin: Mapping[str, str | None]) -> str:
    """Return a runtime's identity from the origin that a run recorded."""
    return origin.get("image_digest") or origin.get("packages_sha256") or ""


def _place_of(output_dir: Path, key: str, identity: str) -> Path:
    return output_dir / FOLDER / (f"{key}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}" if identity else key)


def keep(folder: RunFolder, result: Result) -> None:
    """After a run, store a profile that it made and that XLA applied. Remove a kept profile that a worker refused."""
    identity = _identity_in(folder.provenance().get("environment", {}))
    key = folder.benchmark().instruments.pgle_profile
    if key and any(REFUSED in reason for reason in result.reasons):
        place = _place_of(folder.path.parent, key, identity)
        shutil.rmtree(place, ignore_errors=True)
        note(f"the kept profile {place} was refused and removed; the next run makes a new profile")
    seen = result.pgle.seen if result.pgle else None
    if seen is None or not seen.applied or seen.profile is None:
        return
    wanted = seen.profile
    made = folder.path.glob(f"attempt-*/*/{ABOUT}")  # each attempt makes a profile
    source = next((path.parent for path in made if files.read_json(path, PgleProfile).sha256 == wanted.sha256), None)
    place = _place_of(folder.path.parent, wanted.key, identity)
    if source is None or place.exists():
        return
    place.parent.mkdir(exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    shutil.copyfile(source / COSTS, temporary / COSTS)
    (temporary / ABOUT).write_text(json_text(msgspec.structs.replace(wanted, made_in=folder.run_id)))
    temporary.chmod(0o755)
    with contextlib.suppress(OSError):  # another run has just stored the same profile
        temporary.rename(place)
    shutil.rmtree(temporary, ignore_errors=True)
