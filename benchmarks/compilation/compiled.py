"""The request to a compile program, and its report of a training step: memory and schedule.

How often what is computed in a step, and what hides its collectives, follows from the schedule. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.values import Value


class Operation(Value, frozen=True):
    """One scheduled instruction, of one device. Amounts are those of one execution."""

    name: str
    what: str  # matmul, attention, fusion, copy, collective, loop; fusion is any other kernel, bound by memory
    event: str = "run"  # run, or start and done if other work can run between the two
    of: str = ""  # of a done: the name of its start
    op: str = ""  # the framework's own path of it (jax's op_name)
    layer: str = ""  # of the framework: MlpBlock, Attention.query_projection
    part: str = "elsewhere"  # of the step: forward, backward, recomputed, elsewhere
    flops: float = 0.0
    dtype: str = ""  # of a matmul's factors: bf16, fp8, fp32; of a collective its type in the program
    bytes: float = 0.0  # read and written in the device's memory; of a collective, the whole buffer
    kind: str = ""  # all-gather, reduce-scatter, all-reduce, all-to-all, ...; of attention: forward, backward
    axes: list[str] = []  # of the layout, along which the group lies
    group_size: int = 0
    group_nodes: int = 0  # how many nodes the group spans
    wire_bytes: float = 0.0  # that a device sends, by a ring
    body: str = ""  # of a loop: the computation that it repeats
    trips: int = 1


class Schedule(Value, frozen=True):
    """The finished program: the operations of its entry and of each loop's body, in the order of their schedule."""

    entry: str
    computations: dict[str, list[Operation]]
    not_counted: list[str] = []  # what was not understood, or is counted only roughly, with the reason


class Job(Value, frozen=True):
    """One program for a compile_program to compile."""

    name: str
    settings: list[str]  # the framework's own, as it takes them
    flags: str  # XLA_FLAGS
    target: str  # the properties of the GPU for the compiler
    devices: int
    nodes: int  # that share the devices
    words: dict[str, str]  # an axis of the framework's mesh -> Stepmark's word for it
    replaced: dict[str, str]  # settings that cannot be compiled without the hardware -> what replaces each, and why


class PeakBuffer(Value, frozen=True):
    """Memory of one device that is in use when a step takes the most."""

    bytes: float
    shape: str
    name: str  # of the value that it holds
    instruction: str  # that makes the value
    op: str  # the framework's own path of it; of an argument, its place in the training state
    layer: str  # of the framework: MlpBlock, Attention.query_projection
    part: str  # of the step: forward, backward, recomputed, elsewhere
    argument: bool  # of the program: weights, optimizer, the batch


class CompileReport(Value, frozen=True):
    """The report of a compile_program. The bytes from `argument_bytes` on are the compiler's own, of one device."""

    versions: dict[str, str]
    target: str  # the GPU that it is compiled for
    flags: str  # XLA_FLAGS
    devices: int
    mesh: dict[str, int]
    parameters: int
    argument_bytes: float
    temporary_bytes: float
    output_bytes: float
    aliased_bytes: float  # of the output, that take the place of arguments
    peak_bytes: float  # the most that a device holds at once
    held: list[PeakBuffer]  # at that moment; the largest first, small ones excluded
    schedule: Schedule
    step_sha256: str  # of the step as jax hands it to the compiler
    program_sha256: str  # of the finished program
    replaced: dict[str, str] = {}  # settings that cannot be compiled without the hardware -> what replaces each


def _executed(operations: Sequence[Operation], schedule: Schedule, often: int = 1) -> Iterator[tuple[Operation, int]]:
    """Operations and how often they run, loops multiplied in."""
    for one in operations:
        yield one, often
        if one.what == "loop":
            yield from _executed(schedule.computations[one.body], schedule, often * one.trips)


def _executions(schedule: Schedule) -> Counter[str]:
    """Return how often each computation runs in a step."""
    found = Counter({schedule.entry: 1})
    for one, often in _executed(schedule.computations[schedule.entry], schedule):
        if one.what == "loop":
            found[one.body] += often * one.trips
    return found


# --- matmuls and attention ----------------------------------------------------------------------


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


# --- collectives, and what hides them -----------------------------------------------------------


class Overlap(Value, frozen=True):
    """One collective of the program, and the work between its start and its done."""

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
        """Whether work that takes long runs at the same time: a matmul or attention."""
        return bool(self.matmuls or self.attentions)

    @property
    def sent_bytes(self) -> float:
        """In a step."""
        return self.wire_bytes * self.times


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
