"""Reads what a worker wrote (worker_kit.py): events-rankN.jsonl -> steps, facts, ends.

A line that cannot be read is named, and takes nothing else with it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.values import PgleSeen, RunRecord, Started, Step, Stopped, WorkerEnd, WorkerFacts

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
    facts: list[WorkerFacts] = []
    steps: list[Step] = []
    ends: list[WorkerEnd] = []
    started: list[Started] = []
    unreadable: list[str] = []
    watched: dict[int, PgleSeen] = {}
    stopped: dict[int, Stopped] = {}
    for path in event_files(phase_dir):
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            if not line:
                continue
            try:
                found = _value_of(line, rank_of(path), attempt)
            except UNREADABLE as error:
                unreadable.append(f"{path.name}:{number} {error}")
                continue
            if isinstance(found, Step):
                steps.append(found)
            elif isinstance(found, WorkerFacts):
                facts.append(found)
            elif isinstance(found, Started):
                started.append(found)
            elif isinstance(found, PgleSeen):
                watched[rank_of(path)] = found
            elif isinstance(found, Stopped):
                stopped[rank_of(path)] = found
            else:
                ends.append(found)
    return RunRecord(
        attempt=attempt,
        facts=facts,
        steps=steps,
        ends=ends,
        unreadable=unreadable,
        started=started,
        watched=watched,
        stopped=stopped,
    )


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


def _value_of(line: bytes, rank: int, attempt: int) -> Step | WorkerFacts | WorkerEnd | Started | PgleSeen | Stopped:
    fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    kind = fields.pop("event")
    if kind == "facts":
        return msgspec.convert(fields, WorkerFacts)
    if kind == "end":
        return msgspec.convert(fields, WorkerEnd)
    if kind == "pgle":
        return msgspec.convert(fields, PgleSeen)
    if kind == "stopped":
        return msgspec.convert(fields, Stopped)
    if kind == "started":
        return msgspec.convert({**fields, "rank": rank}, Started)
    if kind == "step":
        fields.pop("gradient_norm", None)  # asserted by the worker, not a figure of the result
        return msgspec.convert({**fields, "tokens": None, "rank": rank, "attempt": attempt}, Step)
    raise KeyError(f"unknown event '{kind}'")
