"""The schedule of a compiled training step: what the program executes, in which order and on which stream. Pure."""

from benchmarks.values import Value


class Operation(Value, frozen=True):
    """One scheduled instruction, of one device. Amounts are those of one execution."""

    name: str
    what: str  # matmul, attention, fusion, copy, collective, loop; fusion is any other kernel, bound by memory
    event: str = "run"  # run; start and done where other work can go on between the two
    of: str = ""  # of a done: the name of its start
    wraps: str = ""  # of a start: the instruction that it wraps, which XLA may also run alone, under its own name
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
