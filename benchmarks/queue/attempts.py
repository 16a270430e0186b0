"""The attempts of a run folder, each with how it ended: reads what it left, and lets outcomes.py judge."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.queue.job_record import AttemptEnd
from benchmarks.queue.outcomes import Seen, lost_nodes, never_started, outcome, says_full_disk, says_out_of_memory
from benchmarks.values import RunRecord, Step

if TYPE_CHECKING:  # runfolder.py makes the result, and asks here on its way
    from benchmarks.runfolder import RunFolder
    from benchmarks.summary import Result

# Of the logs of a failed attempt: the ends of so many, and of each so much.
LOGS_READ = 16
LOG_TAIL_BYTES = 65_536


def queued_attempts(folder: "RunFolder", records: Sequence[RunRecord]) -> list[AttemptEnd]:
    """How each attempt of a queue's job ended; of a job that never started, one that says why."""
    numbers = folder.attempts()
    if not numbers:
        disk = _first_log(folder.job_output(), says_full_disk)
        return [never_started(folder.submitted().job_id, folder.scheduler_end(0), disk)]
    return [_queued_attempt(folder, record, followed=record.attempt != numbers[-1]) for record in records]


def local_attempts(records: Sequence[RunRecord], result: "Result") -> list[AttemptEnd]:
    """Of a run on this machine: the last attempt ended as the run did."""
    *earlier, last = records
    followed = "another attempt followed"
    ends = [
        AttemptEnd(attempt=one.attempt, outcome="unknown", text=followed, steps=len(_first_rank(one)))
        for one in earlier
    ]
    end = AttemptEnd(attempt=last.attempt, outcome="completed", text="completed", steps=len(_first_rank(last)))
    if result.status == "failed":
        why = result.reasons[0]
        kind = "cancelled" if why.startswith("interrupted") else "failed"
        end = msgspec.structs.replace(end, outcome=kind, text=why)
    return [*ends, end]


def _queued_attempt(folder: "RunFolder", record: RunRecord, *, followed: bool) -> AttemptEnd:
    first = _first_rank(record)
    scheduler = folder.scheduler_end(record.attempt)
    seen = Seen(
        attempt=record.attempt,
        steps=len(first),
        last_step=first[-1].step if first else None,
        events=folder.job_events(record.attempt),
        scheduler=scheduler,
        followed=followed,
    )
    if scheduler is None or scheduler.state != "COMPLETED":  # the logs of a good attempt have nothing to explain
        logs = _logs_to_read(folder, record.attempt)
        seen = msgspec.structs.replace(
            seen,
            out_of_memory=_first_log(logs, says_out_of_memory),
            full_disk=_could_not_write(folder, record.attempt) or _first_log(logs, says_full_disk),
            lost_nodes=lost_nodes("\n".join(_tail(path) for path in folder.job_output())),
        )
    return outcome(seen)


def _logs_to_read(folder: "RunFolder", attempt: int) -> list[Path]:
    """Of the ranks that failed, the first before the others; then what the job itself has printed."""
    found = []
    for phase in folder.plan().phases:
        failed = [one for one in folder.ended(phase.name, attempt) if one.exit_code != 0]
        failed.sort(key=lambda one: (one.time is None, one.time or 0.0, one.rank))
        found += [folder.phase_dir(phase.name, attempt) / f"rank-{one.rank}.log" for one in failed]
    return [*found[:LOGS_READ], *folder.job_output()]


def _first_log(paths: Iterable[Path], says: Callable[[str], bool]) -> str | None:
    """The first log whose end says so: "rank 3", or a file's name."""
    for path in paths:
        if says(_tail(path)):
            return path.stem.replace("rank-", "rank ") if path.suffix == ".log" else path.name
    return None


def _could_not_write(folder: "RunFolder", attempt: int) -> str | None:
    """What a worker was told when its events could not be written: on a full disk there is only a link that says so
    (worker_kit.EventFile).
    """
    for phase in folder.plan().phases:
        link = folder.phase_dir(phase.name, attempt) / "could-not-write"
        if link.is_symlink():
            return f"{link.readlink()} in phase {phase.name}"
    return None


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:  # a task that never started has no log
        return ""


def _first_rank(record: RunRecord) -> list[Step]:
    return [step for step in record.steps if step.rank == 0]
