"""What a compiled training step holds, read from the compiler's own text and held against the formulas. Pure."""

from benchmarks.values import Value


class Collective(Value, frozen=True):
    """All collectives of one kind, type and group size in a step; bytes are those of one device."""

    kind: str  # all-gather, reduce-scatter, all-reduce, all-to-all, collective-permute
    dtype: str
    group_size: int
    count: int  # executions a step, loops multiplied in
    buffer_bytes: float  # of the whole buffers
    wire_bytes: float  # that a device sends, by a ring
    what: str = ""  # what is moved: the name of the operation it belongs to, shortened


class Compiled(Value, frozen=True):
    """The report of a compile_program."""

    versions: dict[str, str]
    devices: int
    mesh: dict[str, int]
    parameters: int
    state_bytes: float  # of one device: weights and optimizer, before the step
    temporary_bytes: float
    argument_bytes: float
    output_bytes: float
    dot_flops: float  # of one device and step, loops multiplied by their trip counts
    dots: int
    collectives: list[Collective]
    loops: dict[str, int]  # loop -> trip count
    unknown_loops: list[str]
    seconds: dict[str, float]  # of setting up, lowering, compiling, reading
    peak_memory_bytes: float  # of the compiling process
    replaced: dict[str, str] = {}  # settings that cannot be compiled without the hardware -> what stood in
    notes: list[str] = []
