"""Traces made by hand, and the real one in samples/."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.configs import DEFAULT_ROOT, parse_yaml
from benchmarks.trace.kinds import Kinds, Operation, read_kinds
from benchmarks.trace.trace import Collector, Mark, Trace
from benchmarks.trace.xplane import messages

SAMPLES = Path(__file__).with_name("samples")
SAMPLE = SAMPLES / "maxtext_cpu_2_devices.xplane.pb.gz"  # of steps 20 to 24
SAMPLE_EVENTS = SAMPLES / "events-rank0.jsonl"  # of the same run
CASES: Any = parse_yaml(Path(__file__).with_name("cases.yml"))
MS = 10**9  # picoseconds
TRAIN = "jit_train_step"

Row = tuple[float, float, str]


def sample() -> bytes:
    return gzip.decompress(SAMPLE.read_bytes())


def kinds() -> Kinds:
    return read_kinds(DEFAULT_ROOT)


def trace_of(
    *devices: Sequence[Row],
    marks: Mapping[int, float] | None = None,
    module: str = TRAIN,
    launches: int = 0,
) -> Trace:
    """Devices of (begin, end, name) in milliseconds."""
    found = Collector()
    for number, rows in enumerate(devices):
        for begin, end, name in rows:
            found.add(f"GPU {number}", round(begin * MS), round(end * MS), Operation(name, name, module))
    begins = [Mark(step, round(begin * MS)) for step, begin in (marks or {}).items()]
    return found.trace("n1", [], marks=begins, launches=launches)


def steps_of(count: int, *parts: tuple[float, float, str], period: float = 10) -> list[Row]:
    """The same operations in every step."""
    return [
        (number * period + begin, number * period + end, name)
        for number in range(count)
        for begin, end, name in parts
    ]


class SpaceMaker:
    """An xplane file under the making, as XLA's profiler lays it out."""

    def __init__(self, host: str = "n1") -> None:
        self.space = messages()["XSpace"](hostnames=[host])

    def plane(self, name: str, lines: Mapping[str, Sequence[tuple[Any, ...]]], timestamp_ns: int = 0) -> "SpaceMaker":
        """Lines of (name, begin us, length us, {stat: value}); a text is written as a reference, as XLA does."""
        plane = _PlaneMaker(name)
        for line, events in lines.items():
            plane.add_line(line, events, timestamp_ns)
        self.space.planes.append(plane.message.SerializeToString())
        return self

    def times(self, start_ns: int, stop_ns: int) -> "SpaceMaker":
        plane = _PlaneMaker("Task Environment")
        for name, value in (("profile_start_time", start_ns), ("profile_stop_time", stop_ns)):
            plane.message.stats.add(metadata_id=plane.stat(name), uint64_value=value)
        self.space.planes.append(plane.message.SerializeToString())
        return self

    def program(self, data: bytes, title: str = "jit_train_step(1)") -> "SpaceMaker":
        plane = _PlaneMaker("/host:metadata")
        entry = plane.message.event_metadata.add(key=1)
        entry.value.name = title.encode()
        entry.value.stats.add(metadata_id=plane.stat("Hlo Proto"), bytes_value=data)
        self.space.planes.append(plane.message.SerializeToString())
        return self

    def data(self) -> bytes:
        return bytes(self.space.SerializeToString())


class _PlaneMaker:
    def __init__(self, name: str) -> None:
        self.message = messages()["XPlane"](name=name)
        self._numbers: dict[tuple[str, str], int] = {}

    def stat(self, name: str) -> int:
        return self._number("stat", name, self.message.stat_metadata)

    def _number(self, of: str, name: str, entries: Any) -> int:
        if (of, name) not in self._numbers:
            self._numbers[of, name] = len(entries) + 1
            entry = entries.add(key=len(entries) + 1)
            entry.value.name = name.encode()
        return self._numbers[of, name]

    def add_line(self, name: str, events: Sequence[tuple[Any, ...]], timestamp_ns: int) -> None:
        line = messages()["XLine"](name=name, timestamp_ns=timestamp_ns)
        for title, begin, length, *stats in events:
            event = line.events.add(
                metadata_id=self._number("event", title, self.message.event_metadata),
                offset_ps=round(begin * 1e6),
                duration_ps=round(length * 1e6),
            )
            for stat, value in (stats[0] if stats else {}).items():
                if isinstance(value, str):
                    event.stats.add(metadata_id=self.stat(stat), ref_value=self.stat(value))
                else:
                    event.stats.add(metadata_id=self.stat(stat), int64_value=value)
        self.message.lines.append(line.SerializeToString())
