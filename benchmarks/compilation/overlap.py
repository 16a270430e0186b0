"""Matmuls, attention and collectives of a compiled step, and what is scheduled beside a collective. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.compilation.schedule import Operation, Schedule
from benchmarks.values import Value


class Kernels(Value, frozen=True):
    """All matmuls of one precision, or attention in one direction, of one device."""

    what: str  # matmul, attention
    kind: str  # the precision of a matmul's factors; forward or backward
    instructions: int
    times: int  # executed in a step
    flops: float  # in a step


def kernels(schedule: Schedule) -> list[Kernels]:
    found: dict[tuple[str, str], Kernels] = {}
    often = _executions(schedule)
    for name, operations in schedule.computations.items():
        for one in operations:
            if one.what not in ("matmul", "attention") or one.event == "done":
                continue
            kind = one.dtype if one.what == "matmul" else one.kind
            before = found.get((one.what, kind))
            found[one.what, kind] = Kernels(
                what=one.what,
                kind=kind,
                instructions=1 + (before.instructions if before else 0),
                times=often[name] + (before.times if before else 0),
                flops=often[name] * one.flops + (before.flops if before else 0.0),
            )
    return [found[key] for key in sorted(found)]


class Overlap(Value, frozen=True):
    """One collective of the program, and what lies between its start and its done."""

    name: str
    kind: str
    axes: list[str]
    group_size: int
    group_nodes: int
    part: str
    layer: str
    wire_bytes: float  # of one execution
    times: int  # executed in a step
    asynchronous: bool
    matmuls: int = 0
    attentions: int = 0
    fusions: int = 0
    flops: float = 0.0

    @property
    def hidden(self) -> bool:
        """Whether there is work beside it that takes long: a matmul or attention."""
        return bool(self.matmuls or self.attentions)


def overlap(schedule: Schedule) -> list[Overlap]:
    times = _executions(schedule)
    return [
        _overlap(one, operations[place + 1 :], schedule, times[name])
        for name, operations in schedule.computations.items()
        for place, one in enumerate(operations)
        if one.what == "collective" and one.event != "done"
    ]


def _overlap(one: Operation, after: Sequence[Operation], schedule: Schedule, times: int) -> Overlap:
    done = next((place for place, later in enumerate(after) if later.of == one.name), 0) if one.event != "run" else 0
    between = list(_executed(after[:done], schedule))
    found = Counter[str]()
    for operation, often in between:
        if operation.event != "done":
            found[operation.what] += often
    return Overlap(
        name=one.name,
        kind=one.kind,
        axes=one.axes,
        group_size=one.group_size,
        group_nodes=one.group_nodes,
        part=one.part,
        layer=one.layer,
        wire_bytes=one.wire_bytes,
        times=times,
        asynchronous=one.event == "start",
        matmuls=found["matmul"],
        attentions=found["attention"],
        fusions=found["fusion"],
        flops=sum(operation.flops * often for operation, often in between),
    )


def _executed(operations: Sequence[Operation], schedule: Schedule, often: int = 1) -> Iterator[tuple[Operation, int]]:
    """Operations and how often they run, loops multiplied in."""
    for one in operations:
        yield one, often
        if one.what == "loop":
            yield from _executed(schedule.computations[one.body], schedule, often * one.trips)


def _executions(schedule: Schedule) -> Counter[str]:
    """How often each computation runs in a step."""
    found = Counter({schedule.entry: 1})
    for one, often in _executed(schedule.computations[schedule.entry], schedule):
        if one.what == "loop":
            found[one.body] += often * one.trips
    return found
