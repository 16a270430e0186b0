"""Check in a MaxText phase's logs, events and program whether profile-guided latency estimation (PGLE) was applied.

Every rank must show that it used the profile, because a rank without the profile silently runs another schedule. If
the log of a rank is missing, Stepmark assumes that the rank did not use the profile.
"""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks import files
from benchmarks.values import Benchmark, PgleProfile, PgleSeen, RunRecord, first_rank
from jax_backend import phases, planning
from jax_backend.inside import hlo
from jax_backend.inside.profile_identity import first_few

# XLA logs both lines, in this order, for every module that it schedules with a profile.
READ = re.compile(r"Using PGLE profile from (\S+)")
SCHEDULED = re.compile(r"Using PGLE profile from|Found profile, using profile guided latency estimator")
COST = re.compile(r'costs \{ name: "([^"]+)"')
ENOUGH_COVERED = 0.9  # share of the measured program's collectives; not 1, because the scheduler may add collectives


def evidence_of(benchmark: Benchmark, phase_dir: Path, record: RunRecord) -> PgleSeen | None:
    """Return whether PGLE was applied, and why; None if PGLE is off, or the phase is not measured or has no steps."""
    if phase_dir.name != phases.MEASURED or benchmark.instruments.pgle == "off" or not first_rank(record.steps):
        return None
    logs = [phase_dir / f"rank-{rank}.log" for rank in range(benchmark.nodes * planning.tasks_per_node(benchmark))]
    if benchmark.instruments.pgle == "nsys":
        return _of_profile(benchmark, phase_dir, logs)
    return _watched(benchmark, record, logs)


def _of_profile(benchmark: Benchmark, phase_dir: Path, logs: list[Path]) -> PgleSeen:
    """Return for --pgle=nsys whether every rank read the profile, and whether it has costs for this program."""
    place = Path(phases.profile_folder(benchmark).replace("{phase_dir}", str(phase_dir)))
    profile = files.read_json(place / "profile.json", PgleProfile)
    costs = set(COST.findall((place / phases.PROFILE_FILE).read_text()))
    file = f"{place.name}/{phases.PROFILE_FILE}"
    silent = _silent(logs, lambda line: (match := READ.search(line)) is not None and match[1].endswith(file))
    dumps = hlo.dumps(phase_dir / "hlo")
    problem = ""
    if silent or benchmark.hardware.kind == "cpu":
        why = "the CPU compiler ignores profiles" if benchmark.hardware.kind == "cpu" else "XLA reports no failure"
        where = f" in {first_few(silent)}" if silent else ""
        problem = f"XLA does not report that it read the profile{where} ({why})"
    elif not dumps:
        problem = "the measured program was not saved, so its collectives cannot be compared"
    if problem:
        return PgleSeen(applied=False, reason=problem, profile=profile)
    demanded = [one for path in dumps for one in hlo.read_module(path).collectives() if one.always]
    without = [one.name for one in demanded if not one.known_in(costs)]
    covered = len(demanded) - len(without)
    share = f"{covered} of {len(demanded)} collectives of the measured program have a cost"
    share += f" (not: {first_few(without)})" if without else ""
    applied = covered >= ENOUGH_COVERED * len(demanded)
    made = f"recorded in {profile.made_in or 'this run'}"
    words = f"every rank read the profile of {len(costs)} instructions (key {profile.key[:12]}, {made}); {share}"
    return PgleSeen(
        applied=applied,
        reason=words if applied else f"the profile covers too little of the measured program: {share}",
        collectives=len(demanded),
        covered=covered,
        profile=profile,
    )


def _watched(benchmark: Benchmark, record: RunRecord, logs: list[Path]) -> PgleSeen:
    """Return for --pgle=auto whether every worker reports PGLE, and whether XLA logs its use on a GPU."""
    missing = [str(rank) for rank in range(len(logs)) if rank not in record.watched]
    if missing:
        return PgleSeen(applied=False, reason=f"the workers of these ranks did not report PGLE: {first_few(missing)}")
    first = record.watched[0]
    for rank, one in sorted(record.watched.items()):
        if not one.applied:
            return msgspec.structs.replace(one, reason=f"rank {rank}: {one.reason}" if rank else one.reason)
    silent = [] if benchmark.hardware.kind == "cpu" else _silent(logs, lambda line: bool(SCHEDULED.search(line)))
    if silent:
        why = f"{first.reason}; but XLA does not report in {first_few(silent)} that it uses a profile"
        return msgspec.structs.replace(first, applied=False, reason=why)
    return first


def _silent(logs: list[Path], says: Callable[[str], bool]) -> list[str]:
    """Return the names of the logs that are missing, or in which no line satisfies `says`."""
    found = []
    for log in logs:
        with contextlib.suppress(OSError), log.open(errors="replace") as stream:
            if any(map(says, stream)):
                continue
        found.append(log.name)
    return found
