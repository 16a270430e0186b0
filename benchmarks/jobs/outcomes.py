"""How an attempt of a queued job ended, in one word and one sentence, from all that is known of it. Pure.

The words of the three records (job_record.py) are weighed by rules in a stated order. What the logs say is read by
attempts.py, with the doctor's symptoms.
"""

import signal
from collections.abc import Callable

from benchmarks.jobs.failures import signal_words
from benchmarks.jobs.job_record import AttemptEnd, JobEvent, OutcomeKind, SchedulerEnd
from benchmarks.values import Value


class Seen(Value, frozen=True):
    """All that is known of one attempt; `outcome` makes one word of it."""

    attempt: int
    steps: int  # that rank 0 reported
    last_step: int | None
    events: list[JobEvent]
    scheduler: SchedulerEnd | None
    followed: bool = False  # another attempt of the same job came after it
    out_of_memory: str | None = None  # whose log shows it, such as "rank 3"
    device_memory: str | None = None  # whose log says that a device has no memory left
    on_gpus: bool = True  # what the devices are
    full_disk: str | None = None  # whose log says that no space was left
    lost_nodes: str | None = None  # which nodes have failed, by the job's output
    behind: str | None = None  # which ranks had come less far than the others
    before_the_run: str | None = None  # what went wrong in the phases that are the job's own


# --- the outcome ----------------------------------------------------------------------------------

LOST_NODE = ("NODE_FAIL", "BOOT_FAIL")
AT_ITS_LIMIT = ("TIMEOUT", "DEADLINE")
# Where Slurm ended a job that had been found to hang, it did so because of that.
HUNG_ENDS = (*AT_ITS_LIMIT, "CANCELLED", "FAILED", "UNKNOWN")
NOT_OVER = ("RUNNING", "PENDING", "COMPLETING", "SUSPENDED", "CONFIGURING", "RESIZING", "STOPPED", "SIGNALING")
WHY_AGAIN = {
    "NODE_FAIL": "a node of it failed",
    "BOOT_FAIL": "a node of it did not boot",
    "PREEMPTED": "a job of higher priority took its nodes",
}
# The exit codes of a job that was told to stop, by INT and TERM.
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
DOWN = "down: "  # so the launcher's client names the nodes that are down, in the scheduler's reason


def outcome(seen: Seen) -> AttemptEnd:
    """How an attempt of a queued job ended: the first rule that fits says it.

    The job's own record comes before the scheduler's word where it is more exact (a job that was cancelled because it
    hung), the scheduler's before the exit codes.
    """
    kind, text = next(said for rule in RULES if (said := rule(seen)) is not None)
    text = _noted(text, seen.scheduler)
    return AttemptEnd(attempt=seen.attempt, outcome=kind, text=text, steps=seen.steps, nodes=nodes_of(seen))


def never_started(job_id: str | None, scheduler: SchedulerEnd | None, full_disk: str | None = None) -> AttemptEnd:
    """A job without an attempt: it never left the queue, or ended before its script could write a word."""
    job = f"job {(scheduler.job_id if scheduler else job_id) or 'without a number'}"
    nodes = scheduler.nodes if scheduler else None
    kind: OutcomeKind = "never_started"
    if scheduler is None:
        text = f"{job} has left no attempt, and was not collected: whether it started is not known"
    elif scheduler.started is not None:
        kind = KINDS.get(scheduler.state, "unknown")
        text = f"{scheduler.state}: {job} was started, but left no file{_at(nodes)}{_disk(full_disk)}"
    elif scheduler.state == "UNKNOWN":
        text = f"{job} has left no attempt, and Slurm does not know it: {scheduler.note or 'without a reason'}"
    elif scheduler.state in NOT_OVER:
        text = f"{job} has not started: Slurm says {scheduler.state}{_at(scheduler.reason)}"
    else:
        text = f"{scheduler.state}: {job} never started{_at(scheduler.reason)}{_by(scheduler)}"
    return AttemptEnd(attempt=0, outcome=kind, text=_noted(text, scheduler), steps=0, nodes=nodes)


KINDS: dict[str, OutcomeKind] = {
    "COMPLETED": "failed",  # it left nothing to count
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
    "OUT_OF_MEMORY": "out_of_memory",
    **dict.fromkeys(LOST_NODE, "node_failure"),
    **dict.fromkeys(AT_ITS_LIMIT, "timeout"),
}


Said = tuple[OutcomeKind, str] | None


def _hung(seen: Seen) -> Said:
    hung = _event(seen, "hung")
    if hung is None or _state(seen) not in HUNG_ENDS or seen.followed or _exit_code(seen) == 0:
        return None
    quiet = f" for {hung.seconds:.0f} s" if hung.seconds is not None else ""
    behind = f"; {seen.behind}" if seen.behind else ""
    return "hung", f"hung: {_job(seen)} trained no step{quiet} {_tail(seen)}{behind}; {_slurm_says(seen)}"


def _requeued(seen: Seen) -> Said:
    state = _state(seen)
    if not seen.followed and state not in ("REQUEUED", "REQUEUE_HOLD"):
        return None
    known = f"Slurm ended it as {state}" if state != "UNKNOWN" else "why is not known"
    return "requeued", f"requeued: {_job(seen)} was put back {_tail(seen)}: {_why_again(seen) or known}"


def _lost_node(seen: Seen) -> Said:
    if _state(seen) not in LOST_NODE:
        return None
    return "node_failure", f"{_state(seen)}: {_why_again(seen)}; Slurm ended {_job(seen)} {_tail(seen)}"


def _preempted(seen: Seen) -> Said:
    if _state(seen) != "PREEMPTED":
        return None
    return "preempted", f"PREEMPTED: {WHY_AGAIN['PREEMPTED']}, {_job(seen)} was ended {_reached(seen)}{_where(seen)}"


def _out_of_memory(seen: Seen) -> Said:
    if _state(seen) == "OUT_OF_MEMORY":
        whose = _at(seen.out_of_memory)
        return "out_of_memory", f"OUT_OF_MEMORY: {_job(seen)} needed more memory than it had{whose} {_tail(seen)}"
    if not _failed_itself(seen):
        return None
    if seen.out_of_memory is not None:
        how = f"{seen.out_of_memory} of {_job(seen)} was killed for its memory"
    elif seen.device_memory is not None:
        memory = "GPU memory" if seen.on_gpus else "memory"
        how = f"{seen.device_memory} of {_job(seen)} needed more {memory} than there was"
    else:
        return None
    return "out_of_memory", f"out of memory: {how} {_tail(seen)}"


def _timeout(seen: Seen) -> Said:
    state = _state(seen)
    if state in AT_ITS_LIMIT:
        limit = "time limit" if state == "TIMEOUT" else "deadline"
        return "timeout", f"{state}: Slurm ended {_job(seen)} at its {limit} {_tail(seen)}"
    if _event(seen, "warned") is None or not _failed_itself(seen):
        return None
    return "timeout", f"timeout: {_job(seen)} was told to stop before its time limit, and did {_tail(seen)}"


def _cancelled(seen: Seen) -> Said:
    scheduler = seen.scheduler
    if scheduler is not None and scheduler.state == "CANCELLED":
        return "cancelled", f"CANCELLED: {_job(seen)} was cancelled{_by(scheduler)} {_tail(seen)}"
    if _state(seen) == "UNKNOWN" and _exit_code(seen) in STOPPED and _event(seen, "hung") is None:
        # Not before its time limit: that was judged before (_timeout).
        return "cancelled", f"cancelled: {_job(seen)} was told to stop {_tail(seen)}; by whom is not known"
    return None


def _failed_before_the_run(seen: Seen) -> Said:
    if seen.before_the_run is None or not _failed_itself(seen):
        return None
    return "failed", f"{_failed_word(seen)}: {_job(seen)} trained nothing: {seen.before_the_run}"


def _failed(seen: Seen) -> Said:
    if not _failed_itself(seen):
        return None
    return "failed", f"{_failed_word(seen)}: {_job(seen)} {_how(seen)} {_tail(seen)}{_disk(seen.full_disk)}"


def _failed_word(seen: Seen) -> str:
    return _state(seen) if _state(seen) not in ("UNKNOWN", *NOT_OVER) else "failed"


def _completed(seen: Seen) -> Said:
    if _state(seen) == "COMPLETED":
        return "completed", f"COMPLETED: {_job(seen)} ended well{_where(seen)}"
    if _exit_code(seen) != 0:
        return None
    return "completed", f"completed: {_job(seen)} says itself that it ended well{_where(seen)}; {_slurm_says(seen)}"


def _unknown(seen: Seen) -> Said:
    disk = _disk(seen.full_disk)
    return "unknown", f"unknown: {_job(seen)} left no record of its end {_tail(seen)}; {_slurm_says(seen)}{disk}"


RULES: tuple[Callable[[Seen], Said], ...] = (
    _hung, _requeued, _lost_node, _preempted, _out_of_memory, _timeout, _cancelled, _failed_before_the_run,
    _failed, _completed, _unknown,
)  # fmt: skip


# --- words --------------------------------------------------------------------------------------------


def _state(seen: Seen) -> str:
    return seen.scheduler.state if seen.scheduler else "UNKNOWN"


def _event(seen: Seen, name: str) -> JobEvent | None:
    return next((event for event in reversed(seen.events) if event.event == name), None)


def _exit_code(seen: Seen) -> int | None:
    """Of the job, as its own script wrote it down."""
    end = _event(seen, "end")
    return end.exit_code if end else None


def _failed_itself(seen: Seen) -> bool:
    """By the scheduler's word; where that is not known, by the job's own."""
    if _state(seen) == "FAILED":
        return True
    return _state(seen) in ("UNKNOWN", *NOT_OVER) and _exit_code(seen) not in (None, 0)


def _how(seen: Seen) -> str:
    own = _exit_code(seen)
    if own:  # first: sacct takes 128 off a code above it, and 139 would read as 11
        return f"ended with exit code {own}"
    said = seen.scheduler.exit_code if seen.scheduler else None
    code, _, number = (said or "").partition(":")
    if number.isdecimal() and int(number):
        return f"was ended by signal {signal_words(int(number))}"
    if code.isdecimal() and int(code):
        return f"ended with exit code {code}"
    return "failed"


def _why_again(seen: Seen) -> str | None:
    """Why Slurm ended it or put it back, with the nodes by name where anybody has named them."""
    why = WHY_AGAIN.get(_state(seen))
    reason = (seen.scheduler.reason if seen.scheduler else None) or ""
    nodes = seen.lost_nodes or (reason.removeprefix(DOWN).strip() if reason.startswith(DOWN) else "")
    return why.replace("a node of it", nodes) if why and nodes else why


def _noted(text: str, scheduler: SchedulerEnd | None) -> str:
    """With why the scheduler does not know it better."""
    note = scheduler.note if scheduler else None
    return f"{text}; {note}" if note and note not in text else text


def _job(seen: Seen) -> str:
    start = _event(seen, "start")
    number = seen.scheduler.job_id if seen.scheduler else start.job_id if start else None
    return f"job {number}" if number else "the job"


def nodes_of(seen: Seen) -> str | None:
    """Slurm's list of the nodes that an attempt ran on: the job's own word first, as the accounting hears of a short
    job's nodes late, and until then names one of them.
    """
    start = _event(seen, "start")
    return (start.nodes if start else None) or (seen.scheduler.nodes if seen.scheduler else None)


def _reached(seen: Seen) -> str:
    return f"after step {seen.last_step}" if seen.last_step is not None else "before its first step"


def _at(words: str | None) -> str:
    return f" ({words})" if words else ""


def _where(seen: Seen) -> str:
    return _at(nodes_of(seen))


def _tail(seen: Seen) -> str:
    return f"{_reached(seen)}{_where(seen)}"


def _disk(whose: str | None) -> str:
    return f"; a disk was full: {whose}" if whose else ""


def _by(scheduler: SchedulerEnd) -> str:
    return f" by {scheduler.cancelled_by}" if scheduler.cancelled_by else ""


def _slurm_says(seen: Seen) -> str:
    scheduler = seen.scheduler
    if scheduler is None:
        return "Slurm was not asked yet"
    if scheduler.state == "UNKNOWN":
        return f"Slurm does not know it: {scheduler.note or 'without a reason'}"
    return f"Slurm says {scheduler.state}{_by(scheduler)}"
