"""Find why a run failed: the first rank that failed, its host and exit code, and how far the run came. No I/O."""

import signal
from collections.abc import Mapping, Sequence

from benchmarks.job_record import AttemptEnd, ProcessEnd, figures_from
from benchmarks.secret_rules import hidden_in_reason
from benchmarks.values import RunRecord, WorkerEnd, first_rank

# Used if no record explains the end: the launcher was killed, or its folder was full, missing or renamed.
NO_RECORD = "the run has no record of its end, because its launcher was killed or could not write to its folder,"
# Exit codes of processes that ended by SIGTERM, SIGINT or SIGHUP, and of killed processes.
STOP_CODES = {-15, -2, -1, 130, 143, 129}
KILLED = {-9, 137}
SIGKILL = 9
# Outcomes with a cause outside the run. A process that a signal stopped is then not the cause of the failure.
FROM_OUTSIDE = {"timeout", "cancelled", "preempted", "requeued", "hung", "node_failure"}


def why_failed(
    record: RunRecord,
    ended: Sequence[ProcessEnd],
    attempts: Sequence[AttemptEnd],
    failed_before: Sequence[str],
    *,
    processes: int,
    steps: int,
) -> list[str]:
    """Return the reasons, the first cause first; an empty list if every process finished training.

    `attempts` are the attempts of a queued run. `processes` and `steps` are the expected numbers.
    """
    ends = {end.rank: end for end in record.ends}
    own = first_rank(record.steps)
    steps_to_name = own if all(_went_well(one, ends) for one in ended) else record.steps
    reached = {step.rank: f" after step {step.step}" for step in steps_to_name}
    measured = figures_from(attempts) if attempts else None
    outcome = measured.outcome if measured else "completed"
    found = _who_failed_first(ended, ends, reached, outcome)
    if measured and outcome != "completed":
        return [measured.text, *(failed_before or found)]
    if failed_before:
        return list(failed_before)
    if any(process.interrupted for process in ended):
        return [f"interrupted by the user{_last(reached, 0)}"]
    if attempts and len(ended) < processes:
        found.append(f"{processes - len(ended)} of {processes} ranks wrote no record of their end")
    elif not ended:
        found.append(f"{NO_RECORD}{_last(reached, 0)}")
    if not found and len(own) < steps:
        found.append(f"the run trained {len(own)} of {steps} steps")
    return found


def failed_phase(name: str, ended: Sequence[ProcessEnd], worker_ends: Sequence[WorkerEnd]) -> list[str]:
    """Return why a phase before the measured one failed; empty if it succeeded. Its programs wrote `worker_ends`."""
    if any(process.interrupted for process in ended):
        return [f"interrupted by the user in phase {name}"]
    ends = {end.rank: end for end in worker_ends} or None  # programs of some phases do not record how they ended
    found = _who_failed_first(ended, ends)
    return [f"phase {name}: {found[0]}", *found[1:]] if found else []


# --- ranks --------------------------------------------------------------------------------------


def failure_order(one: ProcessEnd) -> tuple[bool, bool, float, int]:
    """Return a sort key: first the rank that the job recorded as the first to fail, then the other ranks by time."""
    return not one.failed_first, one.time is None, one.time or 0.0, one.rank


def first_to_fail(
    ended: Sequence[ProcessEnd], ends: dict[int, WorkerEnd] | None, outcome: str = ""
) -> ProcessEnd | None:
    """Return the process that failed first.

    If a signal stopped a process, the process counts only if no other process failed and the job's outcome does not
    explain the signal.
    """
    failed = [one for one in ended if not _went_well(one, ends)]
    failed.sort(key=failure_order)
    from_outside = outcome in FROM_OUTSIDE
    stop_codes = STOP_CODES | KILLED if from_outside else STOP_CODES
    own = [one for one in failed if not _was_stopped(one, ends, stop_codes)]
    if from_outside and not own:
        return None
    return next(iter(own or failed), None)


def _who_failed_first(
    ended: Sequence[ProcessEnd],
    ends: dict[int, WorkerEnd] | None,
    reached: Mapping[int, str] | None = None,
    outcome: str = "",
) -> list[str]:
    """Return the rank that failed first, with its host, and the number of ranks that were ended after it."""
    first = first_to_fail(ended, ends, outcome)
    if first is None:
        return []
    where = f" on {first.host}" if first.host else ""
    how = how_it_ended(first, ends.get(first.rank) if ends else None)
    found = [f"rank {first.rank}{where} {how}{'' if reached is None else _last(reached, first.rank)}"]
    others = sum(not _went_well(one, ends) for one in ended) - 1
    if others > 0:
        found.append(f"{others} other rank{'s were' if others > 1 else ' was'} ended later")
    return found


def _last(reached: Mapping[int, str], rank: int) -> str:
    """Return the progress of a rank. If only rank 0 reports steps, return the progress of rank 0."""
    return reached.get(rank) or reached.get(0, " before its first step")


def _went_well(process: ProcessEnd, ends: dict[int, WorkerEnd] | None) -> bool:
    """Return whether a process succeeded. `ends` is None if the programs do not record how they ended."""
    if process.exit_code != 0:
        return False
    end = ends.get(process.rank) if ends is not None else None
    return ends is None or (end is not None and end.status == "done")


def _was_stopped(process: ProcessEnd, ends: dict[int, WorkerEnd] | None, stop_codes: set[int]) -> bool:
    end = ends.get(process.rank) if ends else None
    if end is not None and end.status != "done":
        return end.status == "interrupted"
    return process.exit_code in stop_codes


def how_it_ended(process: ProcessEnd, end: WorkerEnd | None) -> str:
    if end is not None and end.status == "error":
        return f"failed ({hidden_in_reason(end.message)})"
    if process.exit_code is None:
        return "did not end and was killed"
    if process.exit_code < 0:
        number = -process.exit_code
        return f"was killed by signal {number if number == SIGKILL else signal_words(number)}"
    if process.exit_code == 0:
        return "ended without a final record"
    return f"ended with exit code {process.exit_code}"


def signal_words(number: int) -> str:
    """Return the number and the name of a signal, such as 11 (SIGSEGV)."""
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
