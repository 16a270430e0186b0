"""The raw files of a queued job, from which a result is recomputed.

job.json in the run folder describes the submission. The job writes one line per event to attempt-N/job.jsonl. When
the run is collected, attempt-N/scheduler.json gets the scheduler's record of the attempt; a job that never started
has its scheduler.json in the run folder.
"""

from collections.abc import Sequence
from typing import Literal

from benchmarks.values import Value

SUBMITTED = "job.json"
JOB_SCRIPT = "job.sbatch"
EVENTS = "job.jsonl"
SCHEDULER = "scheduler.json"

OutcomeKind = Literal[
    "completed", "failed", "timeout", "out_of_memory", "node_failure", "cancelled", "preempted", "requeued", "hung",
    "never_started", "unknown",
]  # fmt: skip


class JobSubmission(Value, frozen=True):
    """The contents of job.json. It is written before sbatch is called, and again with the job's number."""

    site: str
    job_id: str | None  # None: the launcher ended before sbatch returned the number
    submitted: float  # Unix time
    command: list[str]
    configuration: str | None  # the slurm.conf that was used to submit the job
    hang_timeout: float | None = None


class JobEvent(Value, frozen=True):
    """A line of job.jsonl, which the job script writes."""

    event: Literal["start", "phase_start", "phase_end", "warned", "hung", "end"]
    time: float  # Unix time
    job_id: str | None = None  # only for start
    restarts: int | None = None  # only for start: how often Slurm had requeued the job before
    nodes: str | None = None  # only for start: Slurm's node list
    phase: str | None = None
    coordinator: str | None = None  # only for phase_start: HOST:PORT
    exit_code: int | None = None  # only for phase_end and end
    seconds: float | None = None  # only for hung: the time without a new step


class SchedulerEnd(Value, frozen=True):
    """The contents of scheduler.json: how an attempt ended according to the scheduler."""

    job_id: str
    state: str  # Slurm's name, such as TIMEOUT; UNKNOWN if Slurm has no record of the job
    source: Literal["sacct", "scontrol", "squeue", "nobody"]
    exit_code: str | None = None  # in Slurm's format, such as 0:9
    reason: str | None = None
    nodes: str | None = None
    started: float | None = None  # Unix time
    ended: float | None = None
    cancelled_by: str | None = None
    note: str | None = None  # why the record is incomplete (accounting is off, or the job was purged)


class Binding(Value, frozen=True):
    """How launch/slurm/numa.sh bound a task to the CPUs nearest to the task's GPU."""

    gpu: str  # the GPU's PCI bus id
    node: int | None  # the GPU's NUMA node
    cpus: str  # the CPUs of that node, in the format of /sys
    by: Literal["numactl", "taskset", ""]
    why: str  # why the task is not bound; empty if it is


class ProcessEnd(Value, frozen=True):
    """The end of one process of a run: a line of exits.jsonl, or of a queued job's exits-rankN.jsonl."""

    rank: int
    exit_code: int | None  # negative: a signal; None: the process was still running when the site stopped waiting
    interrupted: bool = False
    failed_first: bool = False  # whether the link `first-failure` of a queued job names this rank
    time: float | None = None  # Unix time, by the clock of the process's node
    host: str | None = None
    binding: Binding | None = None  # None: binding was not requested


class AttemptEnd(Value, frozen=True):
    """The end of one attempt of a run. A part of result.json."""

    attempt: int
    outcome: OutcomeKind
    text: str  # what happened, where, and which record shows it
    steps: int  # the number of steps that rank 0 reported
    nodes: str | None = None
    rank: int | None = None  # the rank whose log the user should read first; None: any rank


def figures_from(attempts: Sequence[AttemptEnd]) -> AttemptEnd:
    """Return the attempt whose metrics the result reports: the last completed attempt, otherwise the last attempt."""
    return next((one for one in reversed(attempts) if one.outcome == "completed"), attempts[-1])
