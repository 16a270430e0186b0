"""Read events-rankN.jsonl, which workers write (worker_kit.py): their steps, facts, and how they ended.

A line that cannot be read is listed as unreadable; the other lines are still used.
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
    """The digest of the step's compiled program, if it became known only after the worker wrote its facts."""

    sha256: str


# An event's name -> the type of its fields. `_value_of` adds the fields that `step` and `started` lack.
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

FIELDS = msgspec.json.Decoder(dict[str, Any])  # made only once, because making it takes longer than decoding a line

# Errors of a line that is not a valid event.
UNREADABLE = (*files.NOT_JSON, KeyError, TypeError)


def rank_of(path: Path) -> int:
    return int(path.stem.removeprefix("events-rank"))


@files.retried
def event_files(phase_dir: Path) -> list[Path]:
    return sorted(phase_dir.glob(EVENT_FILES), key=rank_of)


def read_phase(phase_dir: Path, attempt: int) -> RunRecord:
    """Return everything that the workers of a phase wrote, in the order of the ranks."""
    found: dict[type[Value], list[tuple[int, Any]]] = {kind: [] for kind in EVENTS.values()}
    unreadable: list[str] = []
    for rank, value in _values(phase_dir, attempt, unreadable):
        if not isinstance(value, Step):
            found[type(value)].append((rank, value))
    programs: dict[int, Program] = dict(found[Program])
    return RunRecord(
        attempt=attempt,
        # A worker writes its facts before the first step. If that step compiles the program, its digest comes later.
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
    """Yield the rank and the value of each readable line. Append a text to `unreadable` for every other line."""
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


def follow(phase_dir: Path, attempt: int, rank: int = 0) -> Callable[[], list[Step]]:
    """Return a function that returns a rank's new steps at each call. An unfinished line waits for the next call."""
    offset = 0

    def new_steps() -> list[Step]:
        nonlocal offset
        found = []
        text = b""
        with suppress(FileNotFoundError), files.opened(phase_dir / f"events-rank{rank}.jsonl") as stream:
            stream.seek(offset)
            text = stream.read()
        whole = text[: text.rfind(b"\n") + 1]
        offset += len(whole)
        for line in whole.splitlines():
            with suppress(*UNREADABLE):  # when the run ends, read_phase lists such a line
                found.append(_value_of(line, 0, attempt))
        return [value for value in found if isinstance(value, Step)]

    return new_steps


def _value_of(line: bytes, rank: int, attempt: int) -> Value:
    fields = FIELDS.decode(line)
    kind = fields.pop("event")
    if kind not in EVENTS:
        raise KeyError(f"unknown event '{kind}'")
    if kind == "step":
        fields.pop("gradient_norm", None)  # only the worker checks this value; no result contains it
        fields |= {"tokens": None, "rank": rank, "attempt": attempt}
    elif kind == "started":
        fields["rank"] = rank
    fields = fields if kind == "step" else files.one_line(fields)
    return msgspec.convert(fields, EVENTS[kind])
