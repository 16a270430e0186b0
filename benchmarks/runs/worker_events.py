"""Reads what a worker wrote (worker_kit.py): events-rankN.jsonl -> steps, facts, ends.

A line that cannot be read is named, and takes nothing else with it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import files
from benchmarks.values import (
    EachTime,
    PgleSeen,
    RankStart,
    RunRecord,
    Step,
    Value,
    WorkerEnd,
    WorkerFacts,
)


class Program(Value, frozen=True):
    """The digest of the step's program, if it becomes known only after the facts were written."""

    sha256: str


# The event's name -> what its fields are; those of a step and of a start are completed.
EVENTS: Mapping[str, type[Value]] = {
    "facts": WorkerFacts,
    "end": WorkerEnd,
    "pgle": PgleSeen,
    "program": Program,
    "started": RankStart,
    "step": Step,
}
EVENT_FILES = "events-rank*.jsonl"
FIRST_RANK = "events-rank0.jsonl"

FIELDS = msgspec.json.Decoder(dict[str, Any])  # made once: making it takes longer than a line

# Raised for a line that is not an event.
UNREADABLE = (*files.NOT_JSON, KeyError, TypeError)


def rank_of(path: Path) -> int:
    return int(path.stem.removeprefix("events-rank"))


@files.retried
def event_files(phase_dir: Path) -> list[Path]:
    return sorted(phase_dir.glob(EVENT_FILES), key=rank_of)


def read_phase(phase_dir: Path, attempt: int) -> RunRecord:
    """Everything the workers of a phase wrote, in the order of their ranks."""
    found: dict[type[Value], list[tuple[int, Any]]] = {kind: [] for kind in EVENTS.values()}
    unreadable: list[str] = []
    for rank, value in _values(phase_dir, attempt, unreadable):
        if not isinstance(value, Step):
            found[type(value)].append((rank, value))
    programs: dict[int, Program] = dict(found[Program])
    return RunRecord(
        attempt=attempt,
        # The facts come before the first step; a program that is compiled in it, after them.
        facts=[
            msgspec.structs.replace(fact, program=programs[rank].sha256) if rank in programs else fact
            for rank, fact in found[WorkerFacts]
        ],
        steps=EachTime(lambda: _steps(phase_dir, attempt)),
        ends=[end for _, end in found[WorkerEnd]],
        unreadable=unreadable,
        started=[started for _, started in found[RankStart]],
        watched=dict(found[PgleSeen]),
    )


def _values(phase_dir: Path, attempt: int, unreadable: list[str]) -> Iterator[tuple[int, Value]]:
    """Yield what each line says, with its rank."""
    for path in event_files(phase_dir):
        rank = rank_of(path)
        for number, line in enumerate(files.lines(path), start=1):
            if line == b"\n":
                continue
            try:
                yield rank, _value_of(line, rank, attempt)
            except UNREADABLE as error:
                unreadable.append(f"{path.name}:{number} {error}")


def _steps(phase_dir: Path, attempt: int) -> Iterator[Step]:
    return (value for _, value in _values(phase_dir, attempt, []) if isinstance(value, Step))


def follow(phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
    """New steps of rank 0 at each call; a line that is still being written waits for the next call."""
    offset = 0

    def new_steps() -> list[Step]:
        nonlocal offset
        found = []
        text = b""
        with suppress(FileNotFoundError), files.opened(phase_dir / FIRST_RANK) as stream:
            stream.seek(offset)
            text = stream.read()
        whole = text[: text.rfind(b"\n") + 1]
        offset += len(whole)
        for line in whole.splitlines():
            with suppress(*UNREADABLE):  # named by read_phase when the run ends
                found.append(_value_of(line, 0, attempt))
        return [value for value in found if isinstance(value, Step)]

    return new_steps


def _value_of(line: bytes, rank: int, attempt: int) -> Value:
    fields = FIELDS.decode(line)
    kind = fields.pop("event")
    if kind not in EVENTS:
        raise KeyError(f"unknown event '{kind}'")
    if kind == "step":
        fields.pop("gradient_norm", None)  # asserted by the worker, not a figure of the result
        fields |= {"tokens": None, "rank": rank, "attempt": attempt}
    elif kind == "started":
        fields["rank"] = rank
    fields = fields if kind == "step" else files.one_line(fields)
    return msgspec.convert(fields, EVENTS[kind])
