"""Collect the evidence of each attempt in a run folder. outcomes.py uses it to decide how the attempt ended."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks import files
from benchmarks.job_record import AttemptEnd, JobEvent
from benchmarks.measuring.failures import failure_order
from benchmarks.runs import first_check
from benchmarks.runs.outcomes import AttemptEvidence, never_started, outcome
from benchmarks.runs.runfolder import RunFolder
from benchmarks.text import plural
from benchmarks.values import RunRecord, first_rank

if TYPE_CHECKING:
    from benchmarks.doctor.symptoms import Symptoms

# Symptoms in configs/symptoms.yml that decide the outcome of an attempt.
OUT_OF_MEMORY = ("host_memory", "gpu_memory", "xla_memory")
FULL_DISK = ("disk_full",)
LOST_NODE = ("node_failure",)
# How many logs of a failed attempt are read, and how many bytes from the end of each.
LOGS_READ = 16
LOG_TAIL_BYTES = 65_536


def queued_attempts(folder: RunFolder, records: Sequence[RunRecord]) -> list[AttemptEnd]:
    """Return how each attempt of a queued run ended. A job that never started has one attempt with the reason."""
    numbers = folder.attempts()
    if not numbers:
        disk = _name(_first_log(folder.job_output(), FULL_DISK))
        return [never_started(folder.submitted().job_id, folder.scheduler_end(0), disk)]
    jobs = [_job_of(folder, record.attempt) for record in records]
    # If the user submits the script again, attempts of another job follow. This job was then not requeued.
    followed = [job is not None and job == later for job, later in pairwise([*jobs, None])]
    return [
        _queued_attempt(folder, record, job, followed=again)
        for record, job, again in zip(records, jobs, followed, strict=True)
    ]


def _job_of(folder: RunFolder, attempt: int) -> str | None:
    """Return the job number of an attempt from the job's record, otherwise from the scheduler's record."""
    start = next((event.job_id for event in folder.job_events(attempt) if event.event == "start"), None)
    scheduler = folder.scheduler_end(attempt)
    return start or (scheduler.job_id if scheduler else None)


def _queued_attempt(folder: RunFolder, record: RunRecord, job: str | None, *, followed: bool) -> AttemptEnd:
    first = first_rank(record.steps)
    scheduler = folder.scheduler_end(record.attempt)
    seen = AttemptEvidence(
        attempt=record.attempt,
        steps=len(first),
        last_step=first[-1].step if first else None,
        events=folder.job_events(record.attempt),
        scheduler=scheduler,
        followed=followed,
    )
    if scheduler is not None and scheduler.state == "COMPLETED":  # a successful attempt needs no logs as evidence
        return outcome(seen)
    output = _output_of(folder, job)
    logs = [*_logs_of_the_failed(folder, record.attempt), *output]
    memory = _first_log(logs, OUT_OF_MEMORY)
    # The names of the nodes that failed, according to the job's output.
    lost = [match["node"] for path in output for _, match in _symptoms().matches(_tail(path), LOST_NODE)]
    hung = [event.phase for event in seen.events if event.event == "hung"]
    behind = _slowest_rank(folder, record) if folder.measured_phase().name in hung else None
    seen = msgspec.structs.replace(
        seen,
        out_of_memory=f"{_name(memory)} ({_shown_in(memory, OUT_OF_MEMORY)})" if memory else None,
        full_disk=folder.could_not_write(record.attempt) or _name(_first_log(logs, FULL_DISK)),
        lost_nodes=", ".join(dict.fromkeys(node.decode() for node in lost if node)) or None,
        behind=behind[1] if behind else None,
        before_the_run=_failed_before(folder, record.attempt, seen.events, output),
    )
    end = outcome(seen)
    first_log = {"out_of_memory": _rank(memory), "hung": behind[0] if behind else None}
    return msgspec.structs.replace(end, rank=first_log.get(end.outcome))


def _failed_before(folder: RunFolder, attempt: int, events: Sequence[JobEvent], output: Sequence[Path]) -> str | None:
    """Return why the phase `check` or `unpack` failed; None if both succeeded or did not run."""
    for phase in first_check.BEFORE_THE_RUN:
        codes = [one.exit_code for one in events if (one.event, one.phase) == ("phase_end", phase)]
        if codes and codes[-1]:
            logs = sorted(folder.phase_dir(phase, attempt).glob("rank-*.log"))
            log = "\n".join(map(_tail, [path for path in logs if path.stat().st_size][:LOGS_READ]))
            return first_check.reason(phase, log, "\n".join(map(_tail, output)), codes[-1], _symptoms())
    return None


def _slowest_rank(folder: RunFolder, record: RunRecord) -> tuple[int, str] | None:
    """Return the first rank with the fewest steps in a hung job, and a text; None if all ranks have equally many."""
    if not any(fact.rank for fact in record.facts) and not any(step.rank for step in record.steps):
        return None  # only rank 0 reports steps
    counts = Counter(step.rank for step in record.steps)
    ranks = range(folder.measured_phase().tasks)
    fewest = min(counts[rank] for rank in ranks)
    slow = [rank for rank in ranks if counts[rank] == fewest]
    more = f" and {len(slow) - 1} more" if len(slow) > 1 else ""
    found = slow[0], f"rank {slow[0]}{more} had trained only {plural(fewest, 'step')}"
    return found if len(slow) < len(ranks) else None


# --- logs ---------------------------------------------------------------------------------------


def _logs_of_the_failed(folder: RunFolder, attempt: int) -> list[Path]:
    """Return the logs of ranks that failed, in the order of the failures."""
    found = []
    for phase in folder.plan().phases:
        failed = [one for one in folder.ended(phase.name, attempt) if one.exit_code != 0]
        failed.sort(key=failure_order)
        found += [folder.phase_dir(phase.name, attempt) / f"rank-{one.rank}.log" for one in failed]
    return found[:LOGS_READ]


def _output_of(folder: RunFolder, job: str | None) -> list[Path]:
    """Return the output file of an attempt's job. If it does not exist, return all output files."""
    every = folder.job_output()
    return [path for path in every if path.name == f"slurm-{job}.out"] or every


def _first_log(paths: Iterable[Path], names: Sequence[str]) -> Path | None:
    """Return the first log with one of these symptoms in its last lines."""
    return next((path for path in paths if _shown_in(path, names)), None)


def _shown_in(path: Path, names: Sequence[str]) -> str | None:
    """Return the title of the first symptom in a log's last lines, or None."""
    return next((symptom.title for symptom, _ in _symptoms().matches(_tail(path), names)), None)


@cache
def _symptoms() -> "Symptoms":
    """Return the symptoms in Stepmark's own configs, so that user configs do not change an outcome."""
    from benchmarks.configs import DEFAULT_ROOT
    from benchmarks.doctor.symptoms import read_symptoms  # imported here, because a successful run does not need it

    return read_symptoms(DEFAULT_ROOT)


def _name(log: Path | None) -> str | None:
    """Return a log's rank as text, such as "rank 3", or the file name if the log does not belong to one rank."""
    if log is None:
        return None
    return log.stem.replace("rank-", "rank ") if log.suffix == ".log" else log.name


def _rank(log: Path | None) -> int | None:
    """Return the rank that wrote a log; None for the job's own log."""
    number = log.stem.removeprefix("rank-") if log is not None else ""
    return int(number) if number.isascii() and number.isdecimal() else None


def _tail(path: Path) -> str:
    try:
        with files.opened(path) as stream:
            stream.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:  # a task that never started does not have a log
        return ""
