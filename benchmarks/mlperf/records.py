"""The lines of an MLLOG: `:::MLLOG {json}` wherever it stands in a line, whatever else the log holds.

Bytes in, records out; what a line begins but does not hold whole is named. What the records mean is run_log.py's.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from benchmarks.backend import SkippedLine
from benchmarks.reading.log_stream import rank_of_line, without_colours
from benchmarks.values import Value

TOKEN = b":::MLLOG"
# A line of the format has this after the token; a message such as `:::MLLOG Weight initialization: ...` has not.
BEGIN = re.compile(rb":::MLLOG\s*(?=\{)")
MINGLED = "mingled with another writer's line"  # the package's own parser reads the last of them
LARGEST = 2**53  # beyond it a float is no count
LONGEST_LINE = 1 << 20  # a longer one, as a progress bar paints, is read in pieces


class Record(Value, frozen=True):
    """One line of an MLLOG."""

    line: int  # 1-based, in its file
    key: str
    value: Any
    metadata: dict[str, Any]
    time_ms: float
    rank: int | None = None  # as srun or torchrun labels the line

    @property
    def samples(self) -> int | None:
        """How many samples the line says were trained, or its block holds. NVIDIA's counts are floats at times."""
        return whole(self.metadata.get("samples_count"))

    @property
    def step(self) -> int | None:
        return whole(self.metadata.get("step"))


def number(value: Any) -> float | None:
    """A finite number, None where it is none or absurd."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST:
        return None
    return None if math.isnan(value) else float(value)


def whole(value: Any) -> int | None:
    """A count. NVIDIA writes some as floats."""
    found = number(value)
    return None if found is None else round(found)


def read_records(stream: BinaryIO) -> Iterator[Record | SkippedLine]:
    """Every MLLOG line of a log, in order."""
    place = 1
    while text := stream.readline(LONGEST_LINE):
        for line in text.split(b"\r") if TOKEN in text else ():
            if TOKEN in line:
                found = BEGIN.search(line)
                if found is None:
                    yield SkippedLine(line=place, reason="no JSON object after :::MLLOG")
                else:
                    yield _record(line, found, place)
        place += text.endswith(b"\n")


def _record(line: bytes, found: "re.Match[bytes]", place: int) -> Record | SkippedLine:
    text = without_colours(line[found.end() :]).decode("utf-8", errors="replace").strip()
    if BEGIN.search(line, found.end()):
        return SkippedLine(line=place, reason=MINGLED)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        return SkippedLine(line=place, reason=_not_json(error, text))
    metadata, at = data.get("metadata") or {}, number(data.get("time_ms"))
    if not isinstance(data.get("key"), str):
        return SkippedLine(line=place, reason="it has no key")
    if at is None:
        return SkippedLine(line=place, reason="it has no time_ms")
    if not isinstance(metadata, dict):
        return SkippedLine(line=place, reason="its metadata is no object")
    rank = rank_of_line(line[: found.start()])
    return Record(line=place, key=data["key"], value=data.get("value"), metadata=metadata, time_ms=at, rank=rank)


def _not_json(error: Exception, text: str) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error}"
    if error.msg.startswith("Extra data"):
        return "text after its JSON object"
    if error.pos >= len(text) or error.msg.startswith("Unterminated"):
        return "truncated: its JSON object does not end"
    return f"not JSON: {error.msg}"
