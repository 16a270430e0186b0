"""Reads what a worker wrote (worker_kit.py): events-rankN.jsonl -> steps, facts, ends.

A line that cannot be read is named, and takes nothing else with it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from benchmarks.values import (
    AdaptersSeen,
    Evaluation,
    PgleSeen,
    RunRecord,
    Started,
    Step,
    Stopped,
    Value,
    WorkerEnd,
    WorkerFacts,
)


class Program(Value, frozen=True):
    """The digest of the step's program, where it is known only once the facts are written."""

    sha256: str


Event = Step | WorkerFacts | WorkerEnd | Started | PgleSeen | Stopped | Program | Evaluation | AdaptersSeen
# The event's name -> what its fields are; those of a step and of a start are completed.
AS_WRITTEN: Mapping[str, type[WorkerFacts | WorkerEnd | PgleSeen | Stopped | Program | Evaluation | AdaptersSeen]] = {
    "facts": WorkerFacts,
    "end": WorkerEnd,
    "pgle": PgleSeen,
    "stopped": Stopped,
    "program": Program,
    "evaluation": Evaluation,
    "adapters": AdaptersSeen,
}
EVENT_FILES = "events-rank*.jsonl"

# What a line that is no event raises; ValueError is msgspec's DecodeError, and a UnicodeDecodeError.
UNREADABLE = (ValueError, KeyError, TypeError, RecursionError)


def rank_of(path: Path) -> int:
    return int(path.stem.removeprefix("events-rank"))


def event_files(phase_dir: Path) -> list[Path]:
    ours = [path for path in phase_dir.glob(EVENT_FILES) if path.stem.removeprefix("events-rank").isdecimal()]
    return sorted(ours, key=rank_of)


def read_phase(phase_dir: Path, attempt: int) -> RunRecord:
    """Everything the workers of a phase wrote, in the order of their ranks."""
    found: dict[type[Event], list[tuple[int, Any]]] = {kind: [] for kind in get_args(Event)}
    unreadable: list[str] = []
    for path in event_files(phase_dir):
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            if not line:
                continue
            try:
                value = _value_of(line, rank_of(path), attempt)
            except UNREADABLE as error:
                unreadable.append(f"{path.name}:{number} {error}")
                continue
            found[type(value)].append((rank_of(path), value))
    programs: dict[int, Program] = dict(found[Program])
    return RunRecord(
        attempt=attempt,
        facts=[_with_program(fact, programs.get(rank)) for rank, fact in found[WorkerFacts]],
        steps=[step for _, step in found[Step]],
        ends=[end for _, end in found[WorkerEnd]],
        unreadable=unreadable,
        started=[started for _, started in found[Started]],
        watched=dict(found[PgleSeen]),
        stopped=dict(found[Stopped]),
        evaluations=[evaluation for _, evaluation in found[Evaluation]],
        adapters=dict(found[AdaptersSeen]),
    )


def _with_program(facts: WorkerFacts, program: Program | None) -> WorkerFacts:
    """The facts come before the first step; a program that is compiled in it, after them."""
    return msgspec.structs.replace(facts, program=program.sha256) if program else facts


def follow(phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
    """New steps of every rank at each call; a line that is still being written waits for the next call."""
    offsets: dict[Path, int] = {}

    def new_steps() -> list[Step]:
        found: list[Step] = []
        for path in event_files(phase_dir):
            with path.open("rb") as stream:
                stream.seek(offsets.get(path, 0))
                text = stream.read()
            whole = text[: text.rfind(b"\n") + 1]
            offsets[path] = offsets.get(path, 0) + len(whole)
            found.extend(_steps_among(whole, rank_of(path), attempt))
        return found

    return new_steps


def follow_evaluations(phase_dir: Path) -> Callable[[], list[Evaluation]]:
    """New evaluations of rank 0 at each call."""
    taken = 0

    def new_evaluations() -> list[Evaluation]:
        nonlocal taken
        path = phase_dir / EVENT_FILES.replace("*", "0")
        lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
        new, taken = [line for line in lines[taken:] if b'"evaluation"' in line], len(lines)
        return [value for line in new if isinstance(value := _value_or_none(line), Evaluation)]

    return new_evaluations


def _value_or_none(line: bytes) -> Event | None:
    try:
        return _value_of(line, 0, 1)
    except UNREADABLE:
        return None  # named by read_phase when the run ends


def _steps_among(text: bytes, rank: int, attempt: int) -> list[Step]:
    steps = []
    for line in text.split(b"\n"):
        try:
            value = _value_of(line, rank, attempt) if line else None
        except UNREADABLE:
            continue  # named by read_phase when the run ends
        if isinstance(value, Step):
            steps.append(value)
    return steps


def _value_of(line: bytes, rank: int, attempt: int) -> Event:
    fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    kind = fields.pop("event")
    if kind in AS_WRITTEN:
        return msgspec.convert(fields, AS_WRITTEN[kind])
    if kind == "started":
        return msgspec.convert({**fields, "rank": rank}, Started)
    if kind == "step":
        fields.pop("gradient_norm", None)  # asserted by the worker, not a figure of the result
        return msgspec.convert({**fields, "tokens": None, "rank": rank, "attempt": attempt}, Step)
    raise KeyError(f"unknown event '{kind}'")
