"""The request to a compile program, and its report: the memory and the schedule of a training step. No I/O.

This module also computes from the schedule how often each kernel runs, and which work hides the collectives.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.values import Value


class Operation(Value, frozen=True):
    """One scheduled instruction on one device. FLOPs and bytes count one execution."""

    name: str
    what: str  # matmul, attention, fusion, copy, collective, loop; fusion: every other kernel, limited by memory
    event: str = "run"  # `start` and `done` if other work can run between them, otherwise `run`
    of: str = ""  # for a `done`: the name of its `start`
    op: str = ""  # the path of the operation in the framework (jax's op_name)
    layer: str = ""  # the layer in the framework, such as MlpBlock or Attention.query_projection
    part: str = "elsewhere"  # the part of the step: forward, backward, recomputed or elsewhere
    flops: float = 0.0
    dtype: str = ""  # bf16, fp8 or fp32: the inputs of a matmul, or the data of a collective
    bytes: float = 0.0  # read and written in the device's memory; for a collective, the size of its buffer
    kind: str = ""  # of a collective: all-gather, ...; of attention: forward, backward; of a matmul: empty or experts
    axes: list[str] = []  # the axes of the layout that a collective's group covers
    group_size: int = 0
    group_nodes: int = 0  # the number of nodes on which the group's devices are
    wire_bytes: float = 0.0  # how many bytes a device sends in a ring
    body: str = ""  # for a loop: the computation that it repeats
    trips: int = 1  # for a loop: the number of iterations


class Schedule(Value, frozen=True):
    """The compiled program: the operations of its entry and of each loop's body, in scheduled order."""

    entry: str
    computations: dict[str, list[Operation]]
    not_counted: list[str] = []  # operations that are omitted, or only counted roughly, with reasons


class Job(Value, frozen=True):
    """One program that compile_program must compile."""

    name: str
    settings: list[str]  # in the framework's own syntax
    flags: str  # XLA_FLAGS
    target: str  # the GPU's properties that the compiler needs
    devices: int
    nodes: int  # the number of nodes that have these devices
    words: dict[str, str]  # axis of the framework's mesh -> Stepmark's name of the axis
    replaced: dict[str, str]  # a setting that cannot be compiled without the hardware -> its replacement, and why


class PeakBuffer(Value, frozen=True):
    """A buffer on one device at the moment of the step that needs the most memory."""

    bytes: float
    shape: str
    name: str  # the name of the value in the buffer
    instruction: str  # the instruction that computes the value
    op: str  # the path of the operation in the framework; for an argument, its place in the training state
    layer: str  # the layer in the framework, such as MlpBlock or Attention.query_projection
    part: str  # the part of the step: forward, backward, recomputed or elsewhere
    argument: bool  # whether it is an argument of the program: weights, optimizer state or batch


class CompileReport(Value, frozen=True):
    """The report of compile_program. The compiler computes all sizes in bytes, which are for one device."""

    versions: dict[str, str]
    target: str  # the GPU for which the program is compiled
    flags: str  # XLA_FLAGS
    devices: int
    mesh: dict[str, int]
    parameters: int
    argument_bytes: float
    temporary_bytes: float
    output_bytes: float
    aliased_bytes: float  # the part of the output that reuses memory of arguments
    peak_bytes: float  # the most memory that a device uses at any moment
    held: list[PeakBuffer]  # the buffers at that moment, largest first, without small ones
    schedule: Schedule
    step_sha256: str  # the digest of the step that jax passes to the compiler
    program_sha256: str  # the digest of the compiled program
    replaced: dict[str, str] = {}  # a setting that cannot be compiled without the hardware -> its replacement


def _executed(operations: Sequence[Operation], schedule: Schedule, often: int = 1) -> Iterator[tuple[Operation, int]]:
    """Yield each operation, including those in loops, with how often it is executed."""
    for one in operations:
        yield one, often
        if one.what == "loop":
            yield from _executed(schedule.computations[one.body], schedule, often * one.trips)


def _executions(schedule: Schedule) -> Counter[str]:
    """Return computation -> how often it runs in a step."""
    found = Counter({schedule.entry: 1})
    for one, often in _executed(schedule.computations[schedule.entry], schedule):
        if one.what == "loop":
            found[one.body] += often * one.trips
    return found


# --- matmuls and attention ----------------------------------------------------------------------


class Kernels(Value, frozen=True):
    """All matmuls of one precision, or attention in one direction, on one device."""

    what: str  # matmul or attention
    kind: str  # the precision of a matmul's inputs, and if it is of experts; for attention, forward or backward
    instructions: int
    times: int  # executions per step
    flops: float  # per step


def kernels(schedule: Schedule) -> list[Kernels]:
    found: dict[tuple[str, str], Kernels] = {}
    often = _executions(schedule)
    for name, operations in schedule.computations.items():
        for one in operations:
            if one.what not in ("matmul", "attention") or one.event == "done":
                continue
            kind = f"{one.dtype} {one.kind}".strip() if one.what == "matmul" else one.kind
            before = found.get((one.what, kind))
            found[one.what, kind] = Kernels(
                what=one.what,
                kind=kind,
                instructions=1 + (before.instructions if before else 0),
                times=often[name] + (before.times if before else 0),
                flops=often[name] * one.flops + (before.flops if before else 0.0),
            )
    return [found[key] for key in sorted(found)]


# --- collectives, and the work that hides them --------------------------------------------------


class Overlap(Value, frozen=True):
    """One collective of a program, and the work between its `start` and its `done`."""

    name: str
    kind: str
    axes: list[str]
    group_size: int
    group_nodes: int
    part: str
    layer: str
    wire_bytes: float  # per execution
    times: int  # executions per step
    asynchronous: bool
    matmuls: int = 0
    attentions: int = 0
    fusions: int = 0
    flops: float = 0.0

    @property
    def hidden(self) -> bool:
        """Return whether a matmul or attention, which take long, runs at the same time."""
        return bool(self.matmuls or self.attentions)

    @property
    def sent_bytes(self) -> float:
        """Return how many bytes a device sends in a step."""
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
