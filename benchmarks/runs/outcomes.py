"""Decide from all evidence how an attempt of a queued job ended: one outcome and one sentence. No I/O.

The rules have a fixed order and use the records in job_record.py. attempts.py reads the logs for symptoms.
"""

import signal

from benchmarks.job_record import AttemptEnd, JobEvent, OutcomeKind, SchedulerEnd
from benchmarks.measuring.failures import signal_words
from benchmarks.values import Value


class AttemptEvidence(Value, frozen=True):
    """Everything that is known about one attempt. `outcome` uses it to decide how the attempt ended."""

    attempt: int
    steps: int  # the number of steps that rank 0 reported
    last_step: int | None
    events: list[JobEvent]
    scheduler: SchedulerEnd | None
    followed: bool = False  # whether another attempt of the same job came after this one
    out_of_memory: str | None = None  # the log that shows it, and the kind of memory: rank 3 (GPU out of memory)
    full_disk: str | None = None  # the log that shows a full disk, or the failed write
    lost_nodes: str | None = None  # the nodes that failed according to the job's output
    behind: str | None = None  # the ranks with the fewest steps, and how many steps they trained
    before_the_run: str | None = None  # why the check or the unpack phase failed


# --- the outcome ----------------------------------------------------------------------------------

LOST_NODE = ("NODE_FAIL", "BOOT_FAIL")
AT_ITS_LIMIT = ("TIMEOUT", "DEADLINE")
# If a job hung and Slurm then ended it in one of these states, the outcome is `hung`.
HUNG_ENDS = (*AT_ITS_LIMIT, "CANCELLED", "FAILED", "UNKNOWN")
NOT_OVER = ("RUNNING", "PENDING", "COMPLETING", "SUSPENDED", "CONFIGURING", "RESIZING", "STOPPED", "SIGNALING")
WHY_AGAIN = {
    "NODE_FAIL": "one of its nodes failed",
    "BOOT_FAIL": "one of its nodes did not boot",
    "PREEMPTED": "a job with a higher priority took its nodes",
}
# The exit codes of a job that SIGINT or SIGTERM stopped.
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
DOWN = "down: "  # the launcher's Slurm client puts this before the nodes that are down, in the scheduler's reason


def outcome(seen: AttemptEvidence) -> AttemptEnd:
    """Return how an attempt of a queued job ended, according to the first rule that applies."""
    kind, text = next((kind, text) for holds, kind, text in _rules(seen) if holds)
    text = _noted(text, seen.scheduler)
    return AttemptEnd(attempt=seen.attempt, outcome=kind, text=text, steps=seen.steps, nodes=nodes_of(seen))


def never_started(job_id: str | None, scheduler: SchedulerEnd | None, full_disk: str | None = None) -> AttemptEnd:
    """Return the end of a job without an attempt: it never left the queue, or it ended before its script started."""
    job = f"job {(scheduler.job_id if scheduler else job_id) or 'without a number'}"
    nodes = scheduler.nodes if scheduler else None
    kind: OutcomeKind = "never_started"
    if scheduler is None:
        text = f"{job} wrote no attempt and is not collected, so it is unknown whether it started"
    elif scheduler.started is not None:
        kind = KINDS.get(scheduler.state, "unknown")
        text = f"{scheduler.state}: {job} started, but wrote no file{_at(nodes)}{_disk(full_disk)}"
    else:
        text = f"{scheduler.state}: {job} never started{_at(scheduler.reason)}{_user_text(scheduler)}"
    return AttemptEnd(attempt=0, outcome=kind, text=_noted(text, scheduler), steps=0, nodes=nodes)


KINDS: dict[str, OutcomeKind] = {
    "COMPLETED": "failed",  # the job wrote no files, so there is no result
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
    "OUT_OF_MEMORY": "out_of_memory",
    **dict.fromkeys(LOST_NODE, "node_failure"),
    **dict.fromkeys(AT_ITS_LIMIT, "timeout"),
}


def _rules(seen: AttemptEvidence) -> list[tuple[bool, OutcomeKind, str]]:
    """Return the rules, strongest first. Each has three parts: whether it applies, its outcome, and a sentence.

    Where the job's own record is more exact than the scheduler's, its rules come first, such as for a job that hung
    and was then cancelled. The scheduler's record comes before exit codes.
    """
    state = seen.scheduler.state if seen.scheduler else "UNKNOWN"
    is_known = state not in ("UNKNOWN", *NOT_OVER)
    code, hung, warned = _exit_code(seen), _event(seen, "hung"), _event(seen, "warned")
    failed = state == "FAILED" or (not is_known and code not in (None, 0))
    did_hang = hung is not None and state in HUNG_ENDS and not seen.followed and code != 0
    was_stopped = state == "UNKNOWN" and code in STOPPED and hung is None
    put_back = seen.followed or state in ("REQUEUED", "REQUEUE_HOLD")
    job, nodes, slurm, disk = _job(seen), _at(nodes_of(seen)), _slurm_says(seen), _disk(seen.full_disk)
    reached = f"after step {seen.last_step}" if seen.last_step is not None else "before its first step"
    at = f"{reached}{nodes}"
    quiet = f" for {hung.seconds:.0f} s" if hung is not None and hung.seconds is not None else ""
    behind = f"; {seen.behind}" if seen.behind else ""
    why_again = _why_again(seen, state)
    why_back = why_again or (f"Slurm ended it as {state}" if state != "UNKNOWN" else "for an unknown reason")
    own = state if is_known else "failed"
    no_memory = state == "OUT_OF_MEMORY" or (failed and seen.out_of_memory is not None)
    whose = f", as the log of {seen.out_of_memory} shows" if seen.out_of_memory else ""
    return [
        (did_hang, "hung", f"hung: {job} trained no step{quiet} {at}{behind}; {slurm}"),
        (put_back, "requeued", f"requeued: {job} was put back into the queue {at}: {why_back}"),
        (state in LOST_NODE, "node_failure", f"{state}: {why_again}; Slurm ended {job} {at}"),
        (state == "PREEMPTED", "preempted", f"PREEMPTED: {why_again}, and {job} ended {at}"),
        (no_memory, "out_of_memory", f"out of memory: {job} needed more memory than it had {at}{whose}"),
        (state in AT_ITS_LIMIT, "timeout", f"{state}: Slurm ended {job} at its time limit {at}"),
        (
            failed and warned is not None,
            "timeout",
            f"timeout: {job} was warned that its time limit was near, and stopped {at}",
        ),
        (state == "CANCELLED", "cancelled", f"CANCELLED: {job} was cancelled{_user_text(seen.scheduler)} {at}"),
        (was_stopped, "cancelled", f"cancelled: {job} got a signal from an unknown sender and stopped {at}"),
        (
            failed and seen.before_the_run is not None,
            "failed",
            f"{own}: {job} trained nothing: {seen.before_the_run}",
        ),
        (failed, "failed", f"{own}: {job} {_exit_text(seen)} {at}{disk}"),
        (state == "COMPLETED", "completed", f"COMPLETED: {job} ended well{nodes}"),
        (code == 0, "completed", f"completed: the record of {job} shows that it ended well{nodes}; {slurm}"),
        (True, "unknown", f"unknown: {job} has no record of its end {at}; {slurm}{disk}"),
    ]


# --- words --------------------------------------------------------------------------------------------


def _event(seen: AttemptEvidence, name: str) -> JobEvent | None:
    return next((event for event in reversed(seen.events) if event.event == name), None)


def _exit_code(seen: AttemptEvidence) -> int | None:
    """Return the exit code that the job's script recorded, or None."""
    end = _event(seen, "end")
    return end.exit_code if end else None


def _exit_text(seen: AttemptEvidence) -> str:
    own = _exit_code(seen)
    if own:  # sacct is less exact: it subtracts 128 from codes above 128, so it would show 139 as 11
        return f"ended with exit code {own}"
    reported = seen.scheduler.exit_code if seen.scheduler else None
    code, _, number = (reported or "").partition(":")
    if number.isdecimal() and int(number):
        return f"was ended by signal {signal_words(int(number))}"
    if code.isdecimal() and int(code):
        return f"ended with exit code {code}"
    return "failed"


def _why_again(seen: AttemptEvidence, state: str) -> str | None:
    """Return why Slurm ended or requeued the job, with the names of the nodes if they are known."""
    why = WHY_AGAIN.get(state)
    reason = (seen.scheduler.reason if seen.scheduler else None) or ""
    nodes = seen.lost_nodes or (reason.removeprefix(DOWN).strip() if reason.startswith(DOWN) else "")
    return why.replace("one of its nodes", nodes) if why and nodes else why


def _noted(text: str, scheduler: SchedulerEnd | None) -> str:
    """Return the text with the scheduler's note, which explains why its record is incomplete."""
    note = scheduler.note if scheduler else None
    return f"{text}; {note}" if note and note not in text else text


def _job(seen: AttemptEvidence) -> str:
    start = _event(seen, "start")
    number = seen.scheduler.job_id if seen.scheduler else start.job_id if start else None
    return f"job {number}" if number else "the job"


def nodes_of(seen: AttemptEvidence) -> str | None:
    """Return the nodes of an attempt as Slurm lists them. The job's own record is preferred, because the accounting
    may show only one node of a short job."""
    start = _event(seen, "start")
    return (start.nodes if start else None) or (seen.scheduler.nodes if seen.scheduler else None)


def _at(words: str | None) -> str:
    return f" ({words})" if words else ""


def _disk(whose: str | None) -> str:
    return f"; a disk was full: {whose}" if whose else ""


def _user_text(scheduler: SchedulerEnd | None) -> str:
    return f" by {scheduler.cancelled_by}" if scheduler and scheduler.cancelled_by else ""


def _slurm_says(seen: AttemptEvidence) -> str:
    scheduler = seen.scheduler
    if scheduler is None:
        return "Slurm's record is not collected yet"
    if scheduler.state == "UNKNOWN":
        return f"Slurm does not know the job: {scheduler.note or 'unknown reason'}"
    return f"Slurm reports {scheduler.state}{_user_text(scheduler)}"
