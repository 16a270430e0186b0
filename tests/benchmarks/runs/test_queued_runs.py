"""The result of a queued run, only from its raw files: the outcome first, then the rank that failed first."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.configs import DEFAULT_ROOT
from benchmarks.doctor.symptoms import read_symptoms
from benchmarks.job_record import EVENTS, JOB_SCRIPT, SCHEDULER, SUBMITTED, JobSubmission, SchedulerEnd
from benchmarks.measuring import result_text
from benchmarks.measuring.summary import Result
from benchmarks.runs.attempts import FULL_DISK, LOST_NODE, OUT_OF_MEMORY
from benchmarks.runs.recompute import recompute
from benchmarks.runs.runfolder import PLAN, RunFolder
from jax_backend import BACKEND
from tests.benchmarks.conftest import FACTS

LOGS_OF_FROZEN = Path(__file__).parents[1] / "doctor/frozen"
AddAttempt = Callable[..., Path]

Exit = tuple[int, int, float | None]  # rank, exit code, time


def sacct(state: str, **more: Any) -> SchedulerEnd:
    known = {"job_id": "7", "source": "sacct", "nodes": "node[1-4]", "started": 100.0, "ended": 200.0}
    return SchedulerEnd(**{**known, "state": state, **more})


@pytest.fixture
def queued(empty_run: RunFolder) -> RunFolder:
    """A run that was submitted; four tasks are to train."""
    empty_run.write(
        SUBMITTED, JobSubmission(site="dev", job_id="7", submitted=99.0, command=["run.py"], configuration=None)
    )
    plan = empty_run.plan()
    phases = [msgspec.structs.replace(phase, nodes=4) for phase in plan.phases]
    empty_run.write(PLAN, msgspec.structs.replace(plan, phases=phases))
    (empty_run.path / JOB_SCRIPT).write_text("#!/bin/bash\n")
    return empty_run


@pytest.fixture
def leave(queued: RunFolder, add_attempt: AddAttempt) -> Callable[..., Path]:
    """One attempt of four ranks: its events, exits and what the scheduler said."""

    def attempt(
        scheduler: SchedulerEnd | None,
        exits: Sequence[Exit] = tuple((rank, 0, 190.0) for rank in range(4)),
        number: int = 1,
        steps: int = 12,
        ends: Sequence[str | None] = ("done",) * 4,
        job: Sequence[dict[str, Any]] = ({"event": "end", "time": 199.0, "exit_code": 0},),
        slower: float = 0.0,
        job_id: str = "7",
    ) -> Path:
        phase_dir = queued.phase_dir("perf", number)
        add_attempt(queued, number, exit_code=None, steps=steps, end=ends[0], slower=slower)
        for rank in range(1, 4):
            end = ends[rank]
            line = {"event": "end", "rank": rank, "status": end, "message": "", "failures": []}
            (phase_dir / f"events-rank{rank}.jsonl").write_text(json.dumps(line) + "\n" if end else "")
        for rank, code, time in exits:
            line = {"rank": rank, "exit_code": code, "time": time, "host": f"node{rank + 1}"}
            (phase_dir / f"exits-rank{rank}.jsonl").write_text(json.dumps(line) + "\n")
        start = {"event": "start", "time": 100.0, "job_id": job_id, "restarts": number - 1, "nodes": "node[1-4]"}
        lines = [json.dumps(event) + "\n" for event in (start, *job)]
        (queued.attempt_dir(number) / EVENTS).write_text("".join(lines))
        if scheduler is not None:
            queued.write(f"attempt-{number}/{SCHEDULER}", scheduler)
        return phase_dir

    return attempt


def result_of(folder: RunFolder) -> Result:
    return recompute(folder, BACKEND)[0]


def test_a_good_run_is_valid_and_says_where_it_ran(queued: RunFolder, leave: Callable[..., Path]) -> None:
    leave(sacct("COMPLETED"))
    result = result_of(queued)
    assert (result.status, result.reasons) == ("valid", [])
    (attempt,) = result.attempts
    assert (attempt.outcome, attempt.steps, attempt.nodes) == ("completed", 12, "node[1-4]")
    assert ("attempts", "1, COMPLETED: job 7 ended well (node[1-4])") in result_text.result_rows(result)


DONE = [(rank, 0, 190.0) for rank in range(4)]
STOPPED_LOGS = {
    "exits": [(0, 130, 151.0), (1, 143, 151.0), (2, -15, 151.0), (3, -9, 156.0)],
    "steps": 8,
    "ends": ("interrupted", "interrupted", None, None),
    "job": [],
}
# What Slurm said, what was left -> the status, and how the reasons begin, the first cause first.
ENDS: list[tuple[SchedulerEnd | None, dict[str, Any], str, list[str]]] = [
    # rank 2 falls, and the others are ended later: by Slurm, or because they lost it
    (
        sacct("FAILED", exit_code="139:0"),
        {
            "exits": [(0, 143, 151.0), (1, 1, 150.5), (2, -11, 150.0), (3, -15, 151.0)],
            "steps": 8,
            "ends": ("interrupted", "error", None, None),
            "job": [{"event": "end", "time": 152.0, "exit_code": 139}],
        },
        "failed",
        [
            "FAILED: job 7 ended with exit code 139 after step 7 (node[1-4])",
            "rank 2 on node3 was killed by signal 11 (SIGSEGV) after step 7",
            "3 other ranks were ended later",
        ],
    ),
    # ranks that were stopped do not add a reason
    *(
        (sacct(state), STOPPED_LOGS, "failed", [f"{state}: "])
        for state in ("TIMEOUT", "CANCELLED", "PREEMPTED", "NODE_FAIL")
    ),
    # one that fell long before the time limit is named
    (
        sacct("TIMEOUT"),
        {
            "exits": [(0, 143, 199.0), (1, 3, 120.0), (2, 143, 199.0), (3, 143, 199.0)],
            "ends": ("interrupted", None, "interrupted", "interrupted"),
            "job": [],
        },
        "failed",
        ["TIMEOUT: ", "rank 1 on node2 ended with exit code 3 after step 11", "3 other ranks were ended later"],
    ),
    (sacct("COMPLETED"), {"exits": [DONE[0], DONE[2]]}, "failed", ["2 of 4 ranks wrote no record of their end"]),
    (sacct("COMPLETED"), {"steps": 11}, "failed", ["the run trained 11 of 12 steps"]),
    (None, {}, "valid", []),  # not collected: judged by its own record
    (None, {"job": []}, "failed", ["unknown: "]),
]


@pytest.mark.parametrize(("scheduler", "left", "status", "reasons"), ENDS)
def test_the_outcome_comes_first_then_the_rank_that_failed_first(
    queued: RunFolder,
    leave: Callable[..., Path],
    scheduler: SchedulerEnd | None,
    left: dict[str, Any],
    status: str,
    reasons: list[str],
) -> None:
    leave(scheduler, **left)
    result = result_of(queued)
    assert (result.status, len(result.reasons)) == (status, len(reasons))
    assert all(one.startswith(start) for one, start in zip(result.reasons, reasons, strict=True))
    assert (result.tokens_per_second is None) == (status == "failed")


def test_the_oom_kill_is_distinguished_from_the_kills_that_follow(
    queued: RunFolder, leave: Callable[..., Path]
) -> None:
    exits = [(0, 143, 152.0), (1, -9, 150.0), (2, 143, 152.0), (3, 143, 152.0)]
    phase_dir = leave(sacct("FAILED", exit_code="137:0"), exits, ends=("interrupted", None, None, None), job=[])
    assert result_of(queued).attempts[0].outcome == "failed"
    (phase_dir / "rank-1.log").write_text(
        "x" * 100_000 + "\nslurmstepd: error: Detected 1 oom_kill event in StepId=7.0"
    )
    result = result_of(queued)
    assert result.attempts[0].outcome == "out_of_memory"
    assert result.reasons[0].endswith(", as the log of rank 1 (host out of memory) shows")
    assert result.reasons[1].startswith("rank 1 on node2 was killed by signal 9")


@pytest.mark.parametrize(
    ("names", "others"),
    [
        (OUT_OF_MEMORY, ["step 7 loss 5.1"]),
        (FULL_DISK, ["OSError: [Errno 27] File too large"]),
        (LOST_NODE, ["srun: error: n1: task 0: Killed"]),
    ],
)
def test_the_symptoms_that_decide_an_outcome_are_the_doctors(names: tuple[str, ...], others: list[str]) -> None:
    symptoms = read_symptoms(DEFAULT_ROOT)
    for name in names:
        for sample in symptoms.by_id[name].samples:
            assert any(symptoms.matches(f"3: {sample}", names)), sample
    assert not [text for text in others if any(symptoms.matches(text, names))]


def test_a_full_disk_is_named(queued: RunFolder, leave: Callable[..., Path]) -> None:
    exits = [(rank, 1, 150.0 + rank) for rank in range(4)]
    phase_dir = leave(sacct("FAILED", exit_code="1:0"), exits, steps=3, ends=("error",) * 4, job=[])
    (phase_dir / "rank-0.log").write_text("OSError: [Errno 28] No space left on device\n")
    assert result_of(queued).reasons[0].endswith("; a disk was full: rank 0")


def test_thousands_of_ranks_are_two_lines(queued: RunFolder, leave: Callable[..., Path]) -> None:
    phase_dir = leave(sacct("FAILED", exit_code="1:0"), job=[])
    for rank in range(2048):
        line = {"rank": rank, "exit_code": 1, "time": 150.0 - (rank == 1234), "host": f"node{rank // 8 + 1}"}
        (phase_dir / f"exits-rank{rank}.jsonl").write_text(json.dumps(line) + "\n")
    assert result_of(queued).reasons[1:] == [
        "rank 1234 on node155 ended with exit code 1 after step 11",
        "2047 other ranks were ended later",
    ]


def test_a_requeued_job_gives_the_figures_of_its_last_attempt_alone(
    queued: RunFolder, leave: Callable[..., Path]
) -> None:
    leave(sacct("NODE_FAIL"), [], steps=5, ends=(None,) * 4, job=[], slower=1.0)
    leave(sacct("COMPLETED", started=300.0), number=2)
    result, steps = recompute(queued, BACKEND)
    steps = list(steps)
    assert (result.status, result.window.counted) == ("valid", 11)
    assert [(one.attempt, one.outcome, one.steps) for one in result.attempts] == [
        (1, "requeued", 5),
        (2, "completed", 12),
    ]
    assert {step.excluded_because for step in steps if step.attempt == 1} == {"earlier_attempt"}
    rows = dict(result_text.result_rows(result))["attempts"].split("\n")
    text = "5 steps; requeued: job 7 was put back into the queue after step 4 (node[1-4]): one of its nodes failed"
    assert rows[0] == f"1: {text}"


@pytest.mark.parametrize("steps", [0, 1, 8, 12])
@pytest.mark.parametrize("state", ["CANCELLED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"])
def test_no_later_attempt_that_fails_takes_the_figures_of_one_that_completed(
    queued: RunFolder, leave: Callable[..., Path], state: str, steps: int
) -> None:
    leave(sacct("COMPLETED"))
    before, own = recompute(queued, BACKEND)
    own = list(own)
    again = sacct(state, job_id="8", exit_code="1:0")
    leave(again, [], number=2, steps=steps, ends=(None,) * 4, job=[], slower=1.0, job_id="8")
    after, all_steps = recompute(queued, BACKEND)
    all_steps = list(all_steps)
    assert msgspec.structs.replace(after, attempts=before.attempts) == before
    assert [one.attempt for one in after.attempts] == [1, 2]
    assert all_steps[: len(own)] == own
    assert {step.excluded_because for step in all_steps if step.attempt == 2} <= {"later_attempt"}


def test_a_job_that_a_person_submitted_once_more_was_not_requeued(
    queued: RunFolder, leave: Callable[..., Path]
) -> None:
    leave(sacct("NODE_FAIL"), [], steps=5, ends=(None,) * 4, job=[])
    leave(sacct("FAILED", job_id="8", exit_code="1:0"), [], number=2, job_id="8", job=[])
    leave(sacct("COMPLETED", job_id="9"), number=3, job_id="9")
    (queued.path / "slurm-7.out").write_text("srun: error: Node failure on node2\n")
    (queued.path / "slurm-9.out").write_text("srun: error: Node failure on node4\n")
    ends = result_of(queued).attempts
    assert [one.outcome for one in ends] == ["node_failure", "failed", "completed"]
    assert (
        ends[0].text == "NODE_FAIL: node2 failed; Slurm ended job 7 after step 4 (node[1-4])"
    )  # only its own job's output counts


def steps_of(phase_dir: Path, rank: int, steps: int) -> None:
    """What a rank's worker reports, without an end."""
    events: list[dict[str, Any]] = [{**FACTS, "rank": rank}]
    events += [{"event": "step", "step": step, "seconds": 0.25, "loss": 6.0} for step in range(steps)]
    (phase_dir / f"events-rank{rank}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.fixture
def hung(leave: Callable[..., Path]) -> Path:
    job = [
        {"event": "hung", "time": 190.0, "seconds": 300.0, "phase": "perf"},
        {"event": "end", "time": 199.0, "exit_code": 124},
    ]
    exits = [(rank, -15, 195.0) for rank in range(4)]
    return leave(sacct("FAILED", exit_code="124:0"), exits, steps=6, ends=(None,) * 4, job=job)


def test_a_hang_names_the_ranks_that_are_behind(queued: RunFolder, hung: Path) -> None:
    for rank, steps in ((1, 5), (2, 6), (3, 6)):
        steps_of(hung, rank, steps)
    result = result_of(queued)
    assert result.reasons == [
        "hung: job 7 trained no step for 300 s after step 5 (node[1-4]); rank 1 had trained only 5 steps; "
        "Slurm reports FAILED"
    ]
    assert (result.attempts[0].outcome, result.attempts[0].rank) == ("hung", 1)
    for rank in (1, 2, 3):
        steps_of(hung, rank, 0)
    assert "; rank 1 and 2 more had trained only 0 steps; " in result_of(queued).reasons[0]


def test_a_framework_without_gpu_memory_is_out_of_memory(queued: RunFolder, leave: Callable[..., Path]) -> None:
    exits = [(0, 143, 152.0), (1, 1, 151.0), (2, 1, 150.0), (3, 143, 152.0)]
    phase_dir = leave(sacct("FAILED", exit_code="1:0"), exits, ends=(None,) * 4, job=[])
    (phase_dir / "rank-1.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    (attempt,) = result_of(queued).attempts
    assert (attempt.outcome, attempt.rank) == ("out_of_memory", 1)
    assert attempt.text.endswith(", as the log of rank 1 (GPU out of memory) shows")


def test_a_failed_earlier_phase_is_reported_in_the_same_way(queued: RunFolder) -> None:
    plan = queued.plan()
    warm = msgspec.structs.replace(plan.phases[0], name="warm", writes_steps=False)
    queued.write(PLAN, msgspec.structs.replace(plan, phases=[warm, *plan.phases]))
    phase_dir = queued.phase_dir("warm")
    phase_dir.mkdir(parents=True)
    for rank, code in enumerate((143, 7, 143, 143)):
        line = {"rank": rank, "exit_code": code, "time": 150.0 - code / 100, "host": f"node{rank + 1}"}
        (phase_dir / f"exits-rank{rank}.jsonl").write_text(json.dumps(line) + "\n")
    queued.write(f"attempt-1/{SCHEDULER}", sacct("FAILED", exit_code="7:0"))
    assert result_of(queued).reasons == [
        "FAILED: job 7 ended with exit code 7 before its first step (node[1-4])",
        "phase warm: rank 1 on node2 ended with exit code 7",
        "3 other ranks were ended later",
    ]
    assert result_of(queued).attempts[0].rank == 1


@pytest.mark.parametrize(
    ("log", "output", "words"),
    [
        (
            "slurmstepd: error: pyxis: couldn't start container\n"
            "slurmstepd: error: pyxis:     [ERROR] Write failed because No space left on device\n",
            "srun: error: node3: task 2: Exited with exit code 1\n",
            " on node3 found: no space left; it printed: ",
        ),
        ("", "slurmstepd: error: pyxis: container start failed with error code: 1\n", " found: "),
        ("", "", " found: it ended with exit code 1 and without output; try: "),
    ],
)
def test_a_container_that_was_not_unpacked_is_the_one_reason(
    queued: RunFolder, log: str, output: str, words: str
) -> None:
    """The tasks of other nodes that srun ended are not blamed, nor are those that never started."""
    plan = queued.plan()
    unpack = msgspec.structs.replace(plan.phases[0], name="unpack", writes_steps=False)
    queued.write(PLAN, msgspec.structs.replace(plan, phases=[unpack, *plan.phases]))
    phase_dir = queued.phase_dir("unpack")
    phase_dir.mkdir(parents=True)
    for rank, code in ((0, 0), (1, -9)):
        line = {"rank": rank, "exit_code": code, "time": 110.0, "host": f"node{rank + 1}"}
        (phase_dir / f"exits-rank{rank}.jsonl").write_text(json.dumps(line) + "\n")
    (phase_dir / "rank-0.log").touch()
    (phase_dir / "rank-2.log").write_text(log)
    (queued.path / "slurm-7.out").write_text(output)
    events = [{"event": "phase_end", "time": 111.0, "phase": "unpack", "exit_code": 1}]
    events += [{"event": "end", "time": 112.0, "exit_code": 1}]
    (queued.attempt_dir(1) / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    queued.write(f"attempt-1/{SCHEDULER}", sacct("FAILED", exit_code="1:0"))
    (reason,) = result_of(queued).reasons
    assert reason.startswith(f"FAILED: job 7 trained nothing: unpacking the container{words}")


def test_a_line_of_the_job_that_was_cut_takes_nothing_else_with_it(
    queued: RunFolder, leave: Callable[..., Path]
) -> None:
    phase_dir = leave(sacct("COMPLETED"))
    events = queued.attempt_dir(1) / EVENTS
    events.write_bytes(events.read_bytes() + b'{"event": "en')
    (phase_dir / "exits-rank3.jsonl").write_bytes(b'{"rank": 3, "ex')
    assert [event.event for event in queued.job_events(1)] == ["start", "end"]
    assert result_of(queued).reasons == ["1 of 4 ranks wrote no record of their end"]


# --- runs of this machine ---------------------------------------------------------------------------


def test_a_run_of_this_machine_has_one_attempt_too(whole_run: RunFolder) -> None:
    result = result_of(whole_run)
    assert [(one.attempt, one.outcome, one.steps) for one in result.attempts] == [(1, "completed", 12)]
    assert "attempts" not in dict(result_text.result_rows(result))


def test_the_attempt_of_a_failed_run_of_this_machine(empty_run: RunFolder, add_attempt: AddAttempt) -> None:
    add_attempt(empty_run, exit_code=-11, end=None, steps=4)
    (attempt,) = result_of(empty_run).attempts
    assert (attempt.outcome, attempt.rank) == ("failed", 0)
    assert attempt.text == "rank 0 was killed by signal 11 (SIGSEGV) after step 3"
