"""What is asked of the compiler, and what it reports of a compiled training step. Pure."""

from benchmarks.compilation.schedule import Schedule
from benchmarks.values import Value


class Job(Value, frozen=True):
    """What a compile_program is asked for: one program."""

    name: str
    settings: list[str]  # the framework's own, as it takes them
    flags: str  # XLA_FLAGS
    target: str  # what the compiler is told of the GPU
    devices: int
    nodes: int  # that share the devices
    words: dict[str, str]  # an axis of the framework's mesh -> Stepmark's word for it
    replaced: dict[str, str]  # settings that cannot be compiled without the hardware -> what replaces each, and why


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


class Compiled(Value, frozen=True):
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
    held: list[Held]  # at that moment; the largest first, small ones excluded
    schedule: Schedule
    step_sha256: str  # of the step as jax hands it to the compiler
    program_sha256: str  # of the finished program
    replaced: dict[str, str] = {}  # settings that cannot be compiled without the hardware -> what replaces each
