"""What a MaxText phase shows of profile-guided latency estimation: in its logs, its events and its program."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.values import Benchmark, PgleProfile, PgleSeen, RunRecord
from jax_backend import hlo_text, phases

# XLA says so for every module that it schedules by a profile; jax says the others.
READ = re.compile(r"Using PGLE profile from (\S+)")
FROM_CACHE = re.compile(r"PGLE-optimized (\S*train_step\S*) loaded from compilation cache")
MISSED = re.compile(r"PERSISTENT CACHE MISS for PGLE-optimized (\S*train_step\S*)")
COST = re.compile(r'costs \{ name: "([^"]+)"')
SHOWN = 5


def seen(benchmark: Benchmark, phase_dir: Path, record: RunRecord) -> PgleSeen | None:
    """None for a phase that has nothing to show: where it is off, and before the measured one."""
    if phase_dir.name != phases.MEASURED or benchmark.pgle == "off" or not record.steps:
        return None
    if benchmark.pgle == "nsys":
        return _of_profile(benchmark, phase_dir)
    if benchmark.profile == "nsys":
        return _of_cache(phase_dir)
    return record.pgle


# --- a profile of Nsight Systems ------------------------------------------------------------------


def _of_profile(benchmark: Benchmark, phase_dir: Path) -> PgleSeen:
    """Every rank must say that it has read the profile, and its costs must be those of the program it schedules."""
    place = _profile_folder(benchmark, phase_dir)
    try:
        profile = msgspec.json.decode((place / "profile.json").read_bytes(), type=PgleProfile)
        costs = set(COST.findall((place / phases.PROFILE_FILE).read_text()))
    except (OSError, ValueError) as error:
        return PgleSeen(applied=False, reason=f"the profile cannot be read: {error}")
    silent = [path.name for path in _logs(phase_dir) if not _has_read(path)]
    if silent:
        names = ", ".join(silent[:SHOWN]) + (f" and {len(silent) - SHOWN} more" if len(silent) > SHOWN else "")
        why = (
            "a CPU's compiler uses none" if benchmark.hardware.kind == "cpu" else "XLA goes on without one in silence"
        )
        reason = f"no word of XLA that it has read the profile in {names} ({why})"
        return PgleSeen(applied=False, reason=reason, profile=profile)
    problem, covered = _program(phase_dir, costs)
    if problem:
        return PgleSeen(applied=False, reason=problem, profile=profile)
    words = f"XLA has read the profile of {profile.instructions} instructions (key {profile.key[:12]}); {covered}"
    return PgleSeen(applied=True, reason=words, profile=profile)


def _profile_folder(benchmark: Benchmark, phase_dir: Path) -> Path:
    return Path(phases.profile_folder(benchmark).replace("{phase_dir}", str(phase_dir)))


def _program(phase_dir: Path, costs: set[str]) -> tuple[str, str]:
    """(why the profile was of no use to the program that was measured, how much of it has a cost)."""
    dumps = hlo_text.dumps(phase_dir / "hlo")
    if not dumps:
        return "the program that was measured was not written down, so its collectives cannot be compared", ""
    collectives = [one for path in dumps for one in hlo_text.read_module(path).collectives()]
    with_cost = [one for one in collectives if one.known_in(costs)]
    if collectives and not with_cost:
        return f"none of the {len(collectives)} collectives of the measured program has a cost in the profile", ""
    return "", f"{len(with_cost)} of {len(collectives)} collectives of the measured program have a cost"


def _has_read(log: Path) -> bool:
    return any((match := READ.search(line)) and match[1].endswith(phases.PROFILE_FILE) for line in _lines(log))


# --- jax's own, from a compilation cache ----------------------------------------------------------


def _of_cache(phase_dir: Path) -> PgleSeen:
    """Beside Nsight Systems jax cannot profile: what it compiled in the phase before must come from the cache."""
    for log in _logs(phase_dir):
        lines = [(FROM_CACHE.search(line), MISSED.search(line)) for line in _lines(log)]
        if any(miss for _, miss in lines):
            why = f"the cache of phase {phases.FILL} has no program that was compiled with a profile"
            return PgleSeen(applied=False, reason=f"{log.name}: {why}")
        if not any(hit for hit, _ in lines):
            return PgleSeen(applied=False, reason=f"{log.name} does not say that jax took the program from the cache")
    return PgleSeen(
        applied=True, reason=f"every rank took the program from the cache that phase {phases.FILL} filled"
    )


# --- logs -----------------------------------------------------------------------------------------


def _logs(phase_dir: Path) -> list[Path]:
    return sorted(phase_dir.glob("rank-*.log"), key=lambda path: (len(path.name), path.name))


def _lines(log: Path) -> Iterator[str]:
    with log.open(errors="replace") as stream:
        yield from stream
