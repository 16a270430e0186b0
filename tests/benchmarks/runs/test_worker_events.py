"""Reading what workers write: while they write, cut anywhere, from several ranks, and with garbage among it."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.runs.worker_events import follow, read_phase
from benchmarks.values import RankStart, Step

FACTS = {
    "event": "facts",
    "rank": 0,
    "process_count": 1,
    "device_count": 8,
    "local_device_count": 8,
    "device_kind": "cpu",
    "platform": "cpu",
    "parameters": 106_816,
    "trainable_parameters": 106_816,
    "mesh": {"fsdp": 4, "data": 2},
    "versions": {"maxtext": "0.2.5"},
    "argv": ["steps=3"],
}
END = {"event": "end", "rank": 0, "status": "done", "message": "", "failures": ["every gradient is zero"]}


def step_event(step: int, loss: float | None = 5.5) -> dict[str, object]:
    return {
        "event": "step",
        "step": step,
        "seconds": 0.25,
        "elapsed_seconds": 0.25 * (step + 1),
        "loss": loss,
        "gradient_norm": 1.5,
        "framework_seconds": 0.2,
        "framework_tflops_per_device": 0.02,
        "framework_tokens_per_second_per_device": 1024.0,
    }


def lines_of(*events: dict[str, object]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


STARTED = {"event": "started", "unix_seconds": 1763755200.25, "host": "node-1"}
WHOLE = lines_of(FACTS, STARTED, *(step_event(n) for n in range(4)), END)


def written(folder: Path, text: bytes, rank: int = 0) -> Path:
    path = folder / f"events-rank{rank}.jsonl"
    path.write_bytes(text)
    return path


# --- reading a phase that has ended -------------------------------------------------------------------


def test_a_program_that_is_compiled_after_the_facts_belongs_to_them(tmp_path: Path) -> None:
    """The digest belongs to its own rank, also if it came with the facts."""
    late = {"event": "program", "sha256": "ab" * 32}
    written(tmp_path, lines_of(FACTS, STARTED, step_event(0), late, END))
    written(tmp_path, lines_of({**FACTS, "rank": 1, "program": "cd" * 32}), rank=1)
    written(tmp_path, lines_of({**FACTS, "rank": 2}), rank=2)
    record = read_phase(tmp_path, attempt=1)
    assert [facts.program for facts in record.facts] == ["ab" * 32, "cd" * 32, None]
    assert (record.unreadable, len(list(record.steps)), len(record.ends)) == ([], 1, 1)


def test_all_that_a_worker_wrote(tmp_path: Path) -> None:
    written(tmp_path, WHOLE)
    record = read_phase(tmp_path, attempt=3)
    assert record.attempt == 3
    assert record.facts[0].mesh == {"fsdp": 4, "data": 2}
    assert record.ends[0].failures == ["every gradient is zero"]
    assert record.started == [RankStart(rank=0, unix_seconds=1763755200.25, host="node-1")]
    assert record.unreadable == []
    assert list(record.steps)[1] == Step(
        step=1,
        seconds=0.25,
        loss=5.5,
        tokens=None,
        attempt=3,
        elapsed_seconds=0.5,
        framework_seconds=0.2,
        framework_tflops_per_device=0.02,
        framework_tokens_per_second_per_device=1024.0,
    )


GARBAGE = [
    b"garbage",
    b"{",
    b"[]",
    b"null",
    b"{}",
    b'{"event": "party"}',
    b'{"event": ["step"]}',
    b'{"event": "step"}',
    b'{"event": "step", "step": "one", "seconds": 1, "loss": 1}',
    b'{"event": "end", "rank": 0, "status": "happy"}',
    b'{"event": "started", "host": "node-1"}',
    b'{"event": "started", "host": 1, "unix_seconds": 2.5}',
    b'{"event": "step", "note": "\xff"}',
    b"\xff\xfe\x00",
    b'{"event": ' + b"[" * 20_000,
]


@pytest.mark.parametrize("line", GARBAGE, ids=range(len(GARBAGE)))
def test_a_line_that_is_no_event_is_named_and_costs_no_other(tmp_path: Path, line: bytes) -> None:
    written(tmp_path, lines_of(FACTS, step_event(0)) + line + b"\n" + lines_of(step_event(1), END))
    record = read_phase(tmp_path, 1)
    assert [step.step for step in record.steps] == [0, 1]
    assert (len(record.facts), len(record.ends)) == (1, 1)
    (named,) = record.unreadable
    assert named.startswith("events-rank0.jsonl:3 ")
    assert len(named) > len("events-rank0.jsonl:3 ")
    assert [step.step for step in follow(tmp_path, 1)()] == [0, 1]


# --- following a phase that runs ----------------------------------------------------------------------


def append(path: Path, text: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(text)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cuts=st.lists(st.integers(0, len(WHOLE)), max_size=8).map(sorted))
def test_however_the_writing_is_cut_every_step_comes_once(tmp_path: Path, cuts: list[int]) -> None:
    path = written(tmp_path, b"")
    new_steps = follow(tmp_path, 1)
    seen: list[Step] = []
    for start, end in zip([0, *cuts], [*cuts, len(WHOLE)], strict=True):
        append(path, WHOLE[start:end])
        seen += new_steps()
    assert seen == list(read_phase(tmp_path, 1).steps)
    assert len(seen) == 4
