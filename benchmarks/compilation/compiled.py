"""What a compiled training step holds, read from the compiler's own text and held against the formulas. Pure.

Every line has what the formula says, what the program has, and the named causes of their difference. A cause is
computed too, or is a part of the program that can be told apart; it is never what is left over. What is left over
beyond the line's tolerance is not explained, and the comparison says so.
"""

from collections.abc import Iterable

from benchmarks.compilation.schedule import Schedule
from benchmarks.values import Benchmark, Value


class Matmuls(Value, frozen=True):
    """All matmuls of one part of a step and one pair of types, of one device."""

    part: str  # forward, backward, recomputed, elsewhere
    dtype: str
    by_a_vector: bool  # a scale that is written as a matmul
    count: int  # executions a step, loops multiplied in
    flops: float


class Collective(Value, frozen=True):
    """All collectives of one kind, type and group in a step; bytes are those of one device."""

    kind: str  # all-gather, reduce-scatter, all-reduce, all-to-all, collective-permute
    dtype: str
    group_size: int
    axes: list[str]  # of the layout, along which the group lies, in the words of Parallelism
    what: str  # embedding, head, last norm where one of these is moved; else the operation it belongs to
    count: int  # executions a step, loops multiplied in
    buffer_bytes: float  # of the whole buffers
    wire_bytes: float  # that a device sends, by a ring
    part: str  # of the step: forward, backward, recomputed, elsewhere
    in_a_loop: bool  # over layers, or over micro-steps


class Job(Value, frozen=True):
    """What a compile_program is asked for: one program."""

    name: str
    settings: list[str]  # the framework's own, as it takes them
    flags: str  # XLA_FLAGS
    target: str  # what the compiler is told of the GPU
    devices: int
    nodes: int  # that share the devices
    words: dict[str, str]  # an axis of the framework's mesh -> Stepmark's word for it
    replaced: dict[str, str]  # settings that cannot be compiled without the hardware -> what stands in, and why


class Held(Value, frozen=True):
    """Memory of one device that is in use when a step takes the most."""

    bytes: float
    shape: str
    name: str  # of the value that it holds
    instruction: str  # that makes the value
    op: str  # the framework's own path of it; of an argument, its place in the training state
    layer: str  # of the framework: MlpBlock, Attention.query_projection
    part: str  # of the step: forward, backward, recomputed, elsewhere
    argument: bool  # of the program: weights, optimizer, the batch


class ProfileRead(Value, frozen=True):
    """What XLA says of the PGLE profile that it scheduled by."""

    found: int | None  # instructions with a cost; None: all
    missing: int  # instructions without one


class Compiled(Value, frozen=True):
    """The report of a compile_program. The bytes from `argument_bytes` on are the compiler's own, of one device."""

    versions: dict[str, str]
    devices: int
    target: str  # the GPU that it is compiled for
    flags: str  # XLA_FLAGS
    mesh: dict[str, int]
    parameters: int
    state_bytes: float  # of one device: weights and optimizer, before the step
    argument_bytes: float
    temporary_bytes: float
    output_bytes: float
    aliased_bytes: float  # of the output, that take the place of arguments
    peak_bytes: float  # the most that a device holds at once
    held: list[Held]  # at that moment; the largest first, small ones left out
    matmuls: list[Matmuls]
    collectives: list[Collective]
    schedule: Schedule
    loops: dict[str, int]  # loop -> trip count
    unknown_loops: list[str]
    step_sha256: str  # of the step as jax hands it to the compiler
    program_sha256: str  # of the finished program
    seconds: dict[str, float]  # of setting up, lowering, compiling, reading
    peak_memory_bytes: float  # of the compiling process
    replaced: dict[str, str] = {}  # settings that cannot be compiled without the hardware -> what stood in
    not_counted: list[str] = []  # what may compute or move something, and cannot be counted
    attention_kernels: dict[
        str, int
    ] = {}  # forward, backward -> executions a step; none: attention is made of matmuls
    profile: ProfileRead | None = None  # None: the flags name no PGLE profile

    @property
    def dot_flops(self) -> float:
        """Of one device and step."""
        return sum(group.flops for group in self.matmuls)

    @property
    def wire_bytes(self) -> float:
        return sum(group.wire_bytes for group in self.collectives)


# --- what is held against what ------------------------------------------------------------------


class Cause(Value, frozen=True):
    """Why the program has more than the formula, or less (negative)."""

    text: str
    amount: float


class Line(Value, frozen=True):
    """One figure of a device, by the formula and in the program."""

    what: str
    unit: str  # parameters, bytes, FLOPs
    formula: str
    expected: float
    counted: float
    tolerance: float  # in the same unit
    causes: list[Cause] = []
    at_most: bool = False  # the formula is a bound: less needs no cause

    @property
    def left_over(self) -> float:
        difference = self.counted - self.expected - sum(cause.amount for cause in self.causes)
        return max(0.0, difference) if self.at_most else difference

    @property
    def explained(self) -> bool:
        return abs(self.left_over) <= self.tolerance


def not_explained(lines: Iterable[Line], compiled: Compiled) -> list[str]:
    """What makes the proof fail, in words; empty: every difference has its cause."""
    loops = [f"the trip count of loop {name} is not known: it was counted once" for name in compiled.unknown_loops]
    return [
        *loops,
        *(f"{text}: it is not counted" for text in compiled.not_counted),
        *(f"{line.what}: {line.left_over:+.4g} {line.unit} of a device" for line in lines if not line.explained),
    ]


def causes_of(*causes: Cause) -> list[Cause]:
    """Those that change anything."""
    return [cause for cause in causes if cause.amount]


def multiplies_embedding(benchmark: Benchmark) -> bool:
    """Whether the table is multiplied by which token is where, instead of looked up."""
    return bool(benchmark.knobs.get("use_iota_embed", False))
