"""The raw files of a queue's job, from which a result is recomputed.

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
    """job.json: written before sbatch is called, and again with the job's number."""

    site: str
    job_id: str | None  # None: sbatch had not answered when the launcher ended
    submitted: float  # Unix time
    command: list[str]
    configuration: str | None  # the slurm.conf it was submitted with
    hang_timeout: float | None = None


class JobEvent(Value, frozen=True):
    """A line of job.jsonl, written by the job script."""

    event: Literal["start", "phase_start", "phase_end", "warned", "hung", "end"]
    time: float  # Unix time
    job_id: str | None = None  # of start
    restarts: int | None = None  # of start: how often Slurm had requeued the job before
    nodes: str | None = None  # of start: Slurm's node list
    phase: str | None = None
    coordinator: str | None = None  # of phase_start: HOST:PORT
    exit_code: int | None = None  # of phase_end and end
    seconds: float | None = None  # of hung: how long no step had come


class SchedulerEnd(Value, frozen=True):
    """scheduler.json: how the scheduler says an attempt ended."""

    job_id: str
    state: str  # as Slurm writes it, such as TIMEOUT; UNKNOWN if Slurm has forgotten the job
    source: Literal["sacct", "scontrol", "squeue", "nobody"]
    exit_code: str | None = None  # as Slurm writes it, such as 0:9
    reason: str | None = None
    nodes: str | None = None
    started: float | None = None  # Unix time
    ended: float | None = None
    cancelled_by: str | None = None
    note: str | None = None  # why it is not known better (accounting off, purged)


class Binding(Value, frozen=True):
    """How launch/slurm/numa.sh bound a task to the CPUs nearest to its GPU."""

    gpu: str  # its PCI bus id
    node: int | None  # its NUMA node
    cpus: str  # of that node, as /sys lists them
    by: Literal["numactl", "taskset", ""]
    why: str  # it is not bound; empty: it is


class ProcessEnd(Value, frozen=True):
    """The end of a process of a run, as the site saw it. Lines of exits.jsonl, and of a queue's exits-rankN.jsonl."""

    rank: int
    exit_code: int | None  # negative: a signal; None: it was still running when the site let go of it
    interrupted: bool = False
    failed_first: bool = False  # as the link `first-failure` of a queue's job has it
    time: float | None = None  # Unix time, by the clock of its node
    host: str | None = None
    binding: Binding | None = None  # None: binding was not requested


class AttemptEnd(Value, frozen=True):
    """The end of one attempt of a run. A part of result.json."""

    attempt: int
    outcome: OutcomeKind
    text: str  # what happened, where, and how that is known
    steps: int  # that rank 0 reported
    nodes: str | None = None
    rank: int | None = None  # whose log to read first; None: any rank


def figures_from(attempts: Sequence[AttemptEnd]) -> AttemptEnd:
    """Return the attempt that gives the metrics: the last completed one, or the last one."""
    return next((one for one in reversed(attempts) if one.outcome == "completed"), attempts[-1])
