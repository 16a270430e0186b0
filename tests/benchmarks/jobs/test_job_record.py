"""How an attempt of a queued job ended: one word and one sentence for every way a job can end, weighed in order."""

from typing import Any

import msgspec
import pytest

from benchmarks.jobs.job_record import AttemptEnd, JobEvent, SchedulerEnd
from benchmarks.jobs.outcomes import Seen, never_started, outcome

START = JobEvent(event="start", time=100.0, job_id="7", restarts=0, nodes="node[1-4]")
WARNED = JobEvent(event="warned", time=150.0)
HUNG = JobEvent(event="hung", time=150.0, seconds=300.0)


def said(state: str, **more: Any) -> SchedulerEnd:
    known = {"job_id": "7", "source": "sacct", "nodes": "node[1-4]", "started": 100.0, "ended": 200.0}
    return SchedulerEnd(**{**known, "state": state, **more})


def end(code: int) -> JobEvent:
    return JobEvent(event="end", time=190.0, exit_code=code)


def judged(scheduler: SchedulerEnd | None, *events: JobEvent, last: int | None = 17, **more: Any) -> AttemptEnd:
    steps = 0 if last is None else last + 1
    return outcome(Seen(attempt=1, steps=steps, last_step=last, events=[START, *events], scheduler=scheduler, **more))


UNKNOWN = SchedulerEnd(job_id="7", state="UNKNOWN", source="nobody", note="accounting is off")

CASES = [
    (said("COMPLETED", exit_code="0:0"), [end(0)], {}, "completed", "COMPLETED: job 7 ended well (node[1-4])"),
    (
        said("TIMEOUT", exit_code="0:0"),
        [WARNED],
        {},
        "timeout",
        "TIMEOUT: Slurm ended job 7 at its time limit after step 17 (node[1-4])",
    ),
    (said("DEADLINE"), [], {}, "timeout", "DEADLINE: Slurm ended job 7 at its deadline after step 17 (node[1-4])"),
    (
        said("FAILED", exit_code="1:0"),
        [WARNED, end(1)],
        {},
        "timeout",
        "timeout: job 7 was told to stop before its time limit, and did after step 17 (node[1-4])",
    ),
    (said("COMPLETED"), [WARNED, end(0)], {}, "completed", "COMPLETED: job 7 ended well (node[1-4])"),
    (
        said("FAILED", exit_code="3:0"),
        [end(3)],
        {},
        "failed",
        "FAILED: job 7 ended with exit code 3 after step 17 (node[1-4])",
    ),
    (
        said("FAILED", exit_code="0:11"),
        [],
        {},
        "failed",
        "FAILED: job 7 was ended by signal 11 (SIGSEGV) after step 17 (node[1-4])",
    ),
    (
        said("FAILED", exit_code="1:0"),
        [end(1)],
        {"full_disk": "rank 0"},
        "failed",
        "FAILED: job 7 ended with exit code 1 after step 17 (node[1-4]); a disk was full: rank 0",
    ),
    (
        said("FAILED", exit_code="137:0"),
        [end(137)],
        {"out_of_memory": "rank 3"},
        "out_of_memory",
        "out of memory: rank 3 of job 7 was killed for its memory after step 17 (node[1-4])",
    ),
    (
        said("OUT_OF_MEMORY", exit_code="0:125"),
        [],
        {},
        "out_of_memory",
        "OUT_OF_MEMORY: job 7 needed more memory than it had after step 17 (node[1-4])",
    ),
    (
        said("CANCELLED", cancelled_by="ann"),
        [],
        {},
        "cancelled",
        "CANCELLED: job 7 was cancelled by ann after step 17 (node[1-4])",
    ),
    (
        said("CANCELLED", cancelled_by="ann"),
        [WARNED],
        {},
        "cancelled",
        "CANCELLED: job 7 was cancelled by ann after step 17 (node[1-4])",
    ),
    (
        said("CANCELLED", cancelled_by="ann"),
        [HUNG],
        {},
        "hung",
        "hung: job 7 trained no step for 300 s after step 17 (node[1-4]); Slurm says CANCELLED by ann",
    ),
    (
        said("TIMEOUT"),
        [HUNG],
        {},
        "hung",
        "hung: job 7 trained no step for 300 s after step 17 (node[1-4]); Slurm says TIMEOUT",
    ),
    (said("COMPLETED"), [HUNG, end(0)], {}, "completed", "COMPLETED: job 7 ended well (node[1-4])"),
    (
        said("NODE_FAIL"),
        [HUNG],
        {},
        "node_failure",
        "NODE_FAIL: a node of it failed; Slurm ended job 7 after step 17 (node[1-4])",
    ),
    (
        said("BOOT_FAIL"),
        [],
        {},
        "node_failure",
        "BOOT_FAIL: a node of it did not boot; Slurm ended job 7 after step 17 (node[1-4])",
    ),
    (
        said("PREEMPTED"),
        [],
        {},
        "preempted",
        "PREEMPTED: a job of higher priority took its nodes, job 7 was ended after step 17 (node[1-4])",
    ),
    (
        said("NODE_FAIL"),
        [],
        {"followed": True},
        "requeued",
        "requeued: job 7 was put back after step 17 (node[1-4]): a node of it failed",
    ),
    (
        said("REQUEUED"),
        [],
        {},
        "requeued",
        "requeued: job 7 was put back after step 17 (node[1-4]): Slurm ended it as REQUEUED",
    ),
    (
        None,
        [],
        {"followed": True},
        "requeued",
        "requeued: job 7 was put back after step 17 (node[1-4]): why is not known",
    ),
    (
        UNKNOWN,
        [end(0)],
        {},
        "completed",
        "completed: job 7 says itself that it ended well (node[1-4]); Slurm does not know it: accounting is off",
    ),
    (
        UNKNOWN,
        [end(3)],
        {},
        "failed",
        "failed: job 7 ended with exit code 3 after step 17 (node[1-4]); accounting is off",
    ),
    # sacct takes 128 off the codes above it: the job's own word comes first
    (
        said("FAILED", exit_code="11:0"),
        [end(139)],
        {},
        "failed",
        "FAILED: job 7 ended with exit code 139 after step 17 (node[1-4])",
    ),
    (
        said("FAILED", exit_code="2:0"),
        [end(130)],
        {},
        "failed",
        "FAILED: job 7 ended with exit code 130 after step 17 (node[1-4])",
    ),
    (
        UNKNOWN,
        [end(130)],
        {},
        "cancelled",
        "cancelled: job 7 was told to stop after step 17 (node[1-4]); by whom is not known; accounting is off",
    ),
    (
        None,
        [end(143)],
        {},
        "cancelled",
        "cancelled: job 7 was told to stop after step 17 (node[1-4]); by whom is not known",
    ),
    (
        UNKNOWN,
        [HUNG, end(143)],
        {"behind": "rank 1 had come to step 4 only"},
        "hung",
        "hung: job 7 trained no step for 300 s after step 17 (node[1-4]); rank 1 had come to step 4 only; "
        "Slurm does not know it: accounting is off",
    ),
    (
        said("FAILED", exit_code="1:0", source="scontrol", note="from the controller: accounting is off"),
        [end(1)],
        {},
        "failed",
        "FAILED: job 7 ended with exit code 1 after step 17 (node[1-4]); from the controller: accounting is off",
    ),
    (
        said("COMPLETED", note="accounting is off"),
        [],
        {},
        "completed",
        "COMPLETED: job 7 ended well (node[1-4]); accounting is off",
    ),
    (
        said("NODE_FAIL", reason="down: node1,node3"),
        [],
        {},
        "node_failure",
        "NODE_FAIL: node1,node3 failed; Slurm ended job 7 after step 17 (node[1-4])",
    ),
    (
        said("NODE_FAIL", reason="down: node1"),
        [],
        {"lost_nodes": "node2"},
        "node_failure",
        "NODE_FAIL: node2 failed; Slurm ended job 7 after step 17 (node[1-4])",
    ),
    (
        said("NODE_FAIL", reason="NodeDown"),
        [],
        {},
        "node_failure",
        "NODE_FAIL: a node of it failed; Slurm ended job 7 after step 17 (node[1-4])",
    ),
    (
        said("NODE_FAIL", reason="down: node1"),
        [],
        {"followed": True},
        "requeued",
        "requeued: job 7 was put back after step 17 (node[1-4]): node1 failed",
    ),
    (
        said("FAILED", exit_code="1:0"),
        [end(1)],
        {"device_memory": "rank 3"},
        "out_of_memory",
        "out of memory: rank 3 of job 7 needed more GPU memory than there was after step 17 (node[1-4])",
    ),
    (
        said("FAILED", exit_code="1:0"),
        [end(1)],
        {"device_memory": "rank 3", "on_gpus": False},
        "out_of_memory",
        "out of memory: rank 3 of job 7 needed more memory than there was after step 17 (node[1-4])",
    ),
    (
        UNKNOWN,
        [WARNED, end(143)],
        {},
        "timeout",
        "timeout: job 7 was told to stop before its time limit, and did after step 17 (node[1-4]); accounting is off",
    ),
    (
        UNKNOWN,
        [],
        {},
        "unknown",
        "unknown: job 7 left no record of its end after step 17 (node[1-4]); "
        "Slurm does not know it: accounting is off",
    ),
    (
        None,
        [],
        {},
        "unknown",
        "unknown: job 7 left no record of its end after step 17 (node[1-4]); Slurm was not asked yet",
    ),
    (
        UNKNOWN,
        [HUNG],
        {"followed": True},
        "requeued",
        "requeued: job 7 was put back after step 17 (node[1-4]): why is not known; accounting is off",
    ),
    (
        UNKNOWN,
        [HUNG, end(0)],
        {},
        "completed",
        "completed: job 7 says itself that it ended well (node[1-4]); Slurm does not know it: accounting is off",
    ),
    (
        UNKNOWN,
        [HUNG],
        {},
        "hung",
        "hung: job 7 trained no step for 300 s after step 17 (node[1-4]); Slurm does not know it: accounting is off",
    ),
    (
        said("RUNNING", ended=None),
        [],
        {},
        "unknown",
        "unknown: job 7 left no record of its end after step 17 (node[1-4]); Slurm says RUNNING",
    ),
    (
        said("RUNNING", ended=None),
        [end(0)],
        {},
        "completed",
        "completed: job 7 says itself that it ended well (node[1-4]); Slurm says RUNNING",
    ),
    (
        said("SOMETHING_NEW"),
        [],
        {},
        "unknown",
        "unknown: job 7 left no record of its end after step 17 (node[1-4]); Slurm says SOMETHING_NEW",
    ),
]


@pytest.mark.parametrize(
    ("scheduler", "events", "more", "kind", "text"), CASES, ids=[f"{case[3]}-{at}" for at, case in enumerate(CASES)]
)
def test_every_way_a_job_ends(
    scheduler: SchedulerEnd | None, events: list[JobEvent], more: dict[str, Any], kind: str, text: str
) -> None:
    found = judged(scheduler, *events, **more)
    assert (found.outcome, found.text) == (kind, text)
    assert (found.attempt, found.steps, found.nodes) == (1, 18, "node[1-4]")


def test_a_job_that_never_came_to_a_step_says_so() -> None:
    found = judged(said("TIMEOUT"), last=None)
    assert found.text == "TIMEOUT: Slurm ended job 7 at its time limit before its first step (node[1-4])"
    assert found.steps == 0


def test_the_words_of_a_log_do_not_turn_a_job_that_was_ended_from_outside_into_one_out_of_memory() -> None:
    assert judged(said("CANCELLED"), out_of_memory="rank 1").outcome == "cancelled"
    assert judged(said("TIMEOUT"), out_of_memory="rank 1").outcome == "timeout"
    assert judged(said("COMPLETED"), out_of_memory="rank 1").outcome == "completed"
    assert judged(said("TIMEOUT"), device_memory="rank 1").outcome == "timeout"


NEVER = [
    (
        said("CANCELLED", started=None, nodes=None, reason="DependencyNeverSatisfied", cancelled_by="ann"),
        "never_started",
        "CANCELLED: job 7 never started (DependencyNeverSatisfied) by ann",
    ),
    (
        said("PENDING", started=None, nodes=None, reason="DependencyNeverSatisfied"),
        "never_started",
        "job 7 has not started: Slurm says PENDING (DependencyNeverSatisfied)",
    ),
    (None, "never_started", "job 7 has left no attempt, and was not collected: whether it started is not known"),
    (
        UNKNOWN,
        "never_started",
        "job 7 has left no attempt, and Slurm does not know it: accounting is off",
    ),
    (
        said("PENDING", started=None, nodes=None, note="Slurm cannot be asked: timed out"),
        "never_started",
        "job 7 has not started: Slurm says PENDING; Slurm cannot be asked: timed out",
    ),
    (
        said("FAILED"),
        "failed",
        "FAILED: job 7 was started, but left no file (node[1-4]); a disk was full: slurm-7.out",
    ),
    (
        said("NODE_FAIL"),
        "node_failure",
        "NODE_FAIL: job 7 was started, but left no file (node[1-4]); a disk was full: slurm-7.out",
    ),
]


@pytest.mark.parametrize(("scheduler", "kind", "text"), NEVER)
def test_a_job_without_an_attempt(scheduler: SchedulerEnd | None, kind: str, text: str) -> None:
    found = never_started("7", scheduler, "slurm-7.out")
    assert found.rank is None
    assert (found.attempt, found.steps, found.outcome, found.text) == (0, 0, kind, text)


def test_a_job_that_ended_well_and_left_nothing_did_not_end_well() -> None:
    assert never_started("7", said("COMPLETED")).outcome == "failed"


def test_the_files_of_a_queued_run_are_read_strictly_and_grow_by_optional_fields_alone() -> None:
    event = msgspec.json.decode(b'{"event":"start","time":1.5,"job_id":"7","restarts":0,"nodes":"n1"}', type=JobEvent)
    assert (event.job_id, event.exit_code) == ("7", None)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"event":"begin","time":1.5}', type=JobEvent)


def test_the_jobs_own_list_of_nodes_is_believed_before_the_accountings() -> None:
    """Which for some seconds names the first node alone of a job that was short."""
    assert judged(said("COMPLETED", nodes="node1")).nodes == "node[1-4]"
    alone = Seen(attempt=1, steps=0, last_step=None, events=[], scheduler=said("COMPLETED", nodes="node1"))
    assert outcome(alone).nodes == "node1"
