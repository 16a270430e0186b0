"""How an attempt of a queued job ended: one word and one sentence for every way a job can end, weighed in order."""

from typing import Any

import pytest

from benchmarks.job_record import AttemptEnd, JobEvent, SchedulerEnd
from benchmarks.runs.outcomes import AttemptEvidence, never_started, outcome

START = JobEvent(event="start", time=100.0, job_id="7", restarts=0, nodes="node[1-4]")
WARNED = JobEvent(event="warned", time=150.0)
HUNG = JobEvent(event="hung", time=150.0, seconds=300.0)


def sacct(state: str, **more: Any) -> SchedulerEnd:
    known = {"job_id": "7", "source": "sacct", "nodes": "node[1-4]", "started": 100.0, "ended": 200.0}
    return SchedulerEnd(**{**known, "state": state, **more})


def end(code: int) -> JobEvent:
    return JobEvent(event="end", time=190.0, exit_code=code)


def judged(scheduler: SchedulerEnd | None, *events: JobEvent, last: int | None = 17, **more: Any) -> AttemptEnd:
    steps = 0 if last is None else last + 1
    return outcome(
        AttemptEvidence(attempt=1, steps=steps, last_step=last, events=[START, *events], scheduler=scheduler, **more)
    )


UNKNOWN = SchedulerEnd(job_id="7", state="UNKNOWN", source="nobody", note="accounting is off")

DOWN = "down: node1,node3"
# Scheduler, the job's own events, what else was seen -> the outcome, and what its text must say.
CASES: list[tuple[SchedulerEnd | None, list[JobEvent], dict[str, Any], str, str]] = [
    (sacct("COMPLETED", exit_code="0:0"), [end(0)], {}, "completed", "COMPLETED"),
    (sacct("TIMEOUT", exit_code="0:0"), [WARNED], {}, "timeout", "at its time limit after step 17 (node[1-4])"),
    (sacct("FAILED", exit_code="1:0"), [WARNED, end(1)], {}, "timeout", "its time limit was near"),
    (sacct("COMPLETED"), [WARNED, end(0)], {}, "completed", "COMPLETED"),
    (sacct("FAILED", exit_code="3:0"), [end(3)], {}, "failed", "exit code 3"),
    (sacct("FAILED", exit_code="0:11"), [], {}, "failed", "signal 11 (SIGSEGV)"),
    (sacct("FAILED"), [end(1)], {"full_disk": "rank 0"}, "failed", "a disk was full: rank 0"),
    (sacct("FAILED"), [end(137)], {"out_of_memory": "rank 3"}, "out_of_memory", "the log of rank 3 shows"),
    (sacct("OUT_OF_MEMORY", exit_code="0:125"), [], {}, "out_of_memory", "more memory than"),
    (sacct("CANCELLED", cancelled_by="ann"), [], {}, "cancelled", "by ann"),
    (sacct("CANCELLED", cancelled_by="ann"), [WARNED], {}, "cancelled", "by ann"),
    (sacct("CANCELLED", cancelled_by="ann"), [HUNG], {}, "hung", "no step for 300 s"),
    (sacct("TIMEOUT"), [HUNG], {}, "hung", "Slurm reports TIMEOUT"),
    (sacct("COMPLETED"), [HUNG, end(0)], {}, "completed", "COMPLETED"),
    (sacct("NODE_FAIL"), [HUNG], {}, "node_failure", "one of its nodes failed"),
    (sacct("BOOT_FAIL"), [], {}, "node_failure", "did not boot"),
    (sacct("PREEMPTED"), [], {}, "preempted", "higher priority"),
    (sacct("NODE_FAIL"), [], {"followed": True}, "requeued", "one of its nodes failed"),
    (sacct("REQUEUED"), [], {}, "requeued", "Slurm ended it as REQUEUED"),
    (None, [], {"followed": True}, "requeued", "for an unknown reason"),
    (UNKNOWN, [end(0)], {}, "completed", "Slurm does not know the job: accounting is off"),
    (UNKNOWN, [end(3)], {}, "failed", "exit code 3"),
    # sacct takes 128 off the codes above it: the job's own word comes first
    (sacct("FAILED", exit_code="11:0"), [end(139)], {}, "failed", "exit code 139"),
    (sacct("FAILED", exit_code="2:0"), [end(130)], {}, "failed", "exit code 130"),
    (UNKNOWN, [end(130)], {}, "cancelled", "from an unknown sender"),
    (None, [end(143)], {}, "cancelled", "from an unknown sender"),
    (UNKNOWN, [HUNG, end(143)], {"behind": "rank 1 had trained 4 steps"}, "hung", "; rank 1 had"),
    (sacct("FAILED", source="scontrol", note="accounting is off"), [end(1)], {}, "failed", "accounting is off"),
    (sacct("COMPLETED", note="accounting is off"), [], {}, "completed", "accounting is off"),
    (sacct("NODE_FAIL", reason=DOWN), [], {}, "node_failure", "node1,node3 failed"),
    (sacct("NODE_FAIL", reason=DOWN), [], {"lost_nodes": "node2"}, "node_failure", "node2 failed"),
    (sacct("NODE_FAIL", reason="NodeDown"), [], {}, "node_failure", "one of its nodes failed"),
    (sacct("NODE_FAIL", reason=DOWN), [], {"followed": True}, "requeued", "node1,node3 failed"),
    (UNKNOWN, [WARNED, end(143)], {}, "timeout", "its time limit was near"),
    (UNKNOWN, [], {}, "unknown", "Slurm does not know the job: accounting is off"),
    (None, [], {}, "unknown", "Slurm's record is not collected yet"),
    (UNKNOWN, [HUNG], {"followed": True}, "requeued", "for an unknown reason"),
    (UNKNOWN, [HUNG, end(0)], {}, "completed", "ended well"),
    (UNKNOWN, [HUNG], {}, "hung", "no step for 300 s"),
    (sacct("RUNNING", ended=None), [], {}, "unknown", "Slurm reports RUNNING"),
    (sacct("RUNNING", ended=None), [end(0)], {}, "completed", "Slurm reports RUNNING"),
    (sacct("SOMETHING_NEW"), [], {}, "unknown", "Slurm reports SOMETHING_NEW"),
    # the words of a log do not turn a job that was ended from outside into one out of memory
    (sacct("CANCELLED"), [], {"out_of_memory": "rank 1"}, "cancelled", "CANCELLED"),
    (sacct("COMPLETED"), [], {"out_of_memory": "rank 1"}, "completed", "COMPLETED"),
    (sacct("TIMEOUT"), [], {"last": None}, "timeout", "before its first step"),
]


@pytest.mark.parametrize(
    ("scheduler", "events", "more", "kind", "words"), CASES, ids=[f"{case[3]}-{at}" for at, case in enumerate(CASES)]
)
def test_every_way_a_job_ends(
    scheduler: SchedulerEnd | None, events: list[JobEvent], more: dict[str, Any], kind: str, words: str
) -> None:
    found = judged(scheduler, *events, **more)
    assert found.outcome == kind
    assert words in found.text
    assert "job 7" in found.text
    assert (found.attempt, found.steps, found.nodes) == (1, 0 if "last" in more else 18, "node[1-4]")


WAITED: dict[str, Any] = {"started": None, "nodes": None, "reason": "DependencyNeverSatisfied"}
NEVER = [
    (sacct("CANCELLED", **WAITED, cancelled_by="ann"), "never_started", "(DependencyNeverSatisfied) by ann"),
    (sacct("PENDING", **WAITED), "never_started", "PENDING: job 7 never started (DependencyNeverSatisfied)"),
    (sacct("PENDING", **WAITED, note="timed out"), "never_started", "; timed out"),
    (None, "never_started", "is not collected"),
    (UNKNOWN, "never_started", "; accounting is off"),
    (sacct("FAILED"), "failed", "a disk was full: slurm-7.out"),
    (sacct("COMPLETED"), "failed", "COMPLETED: job 7 started, but"),
    (sacct("NODE_FAIL"), "node_failure", "a disk was full: slurm-7.out"),
]


@pytest.mark.parametrize(("scheduler", "kind", "words"), NEVER)
def test_a_job_without_an_attempt(scheduler: SchedulerEnd | None, kind: str, words: str) -> None:
    found = never_started("7", scheduler, "slurm-7.out")
    assert (found.attempt, found.steps, found.outcome, found.rank) == (0, 0, kind, None)
    assert words in found.text


def test_the_jobs_own_list_of_nodes_is_believed_before_the_accountings() -> None:
    """The accounting, for some seconds, names only the first node of a short job."""
    assert judged(sacct("COMPLETED", nodes="node1")).nodes == "node[1-4]"
    alone = AttemptEvidence(
        attempt=1, steps=0, last_step=None, events=[], scheduler=sacct("COMPLETED", nodes="node1")
    )
    assert outcome(alone).nodes == "node1"
