"""MaxText's mesh axes in common words: ici_* within a node (or one machine), dcn_* between nodes."""

from math import gcd, prod

from benchmarks.errors import RequestError
from benchmarks.values import Hardware, Parallelism, Scalar

# axis of MaxText's mesh -> Stepmark's word for what it shares
AXIS_WORDS = {
    "data": "data",
    "fsdp": "fsdp",
    "fsdp_transpose": "fsdp",
    "context": "context",
    "tensor": "tensor",
    "tensor_sequence": "tensor",
    "pipeline": "pipeline",
}
AXES = tuple(f"{network}_{axis}_parallelism" for network in ("ici", "dcn") for axis in AXIS_WORDS)

# MaxText leaves these to the device count (-1); a resolved benchmark leaves nothing open.
MAXTEXT_AUTOMATIC = ("ici_fsdp_parallelism", "dcn_data_parallelism")


def parallelism(knobs: dict[str, Scalar]) -> Parallelism:
    shares: dict[str, int] = {}
    for axis, word in AXIS_WORDS.items():
        shares[word] = shares.get(word, 1) * prod(_size(knobs, network, axis) for network in ("ici", "dcn"))
    return Parallelism(**shares)


def between_nodes(knobs: dict[str, Scalar]) -> int:
    """How many shares the dcn_* axes make."""
    return prod(_size(knobs, "dcn", axis) for axis in AXIS_WORDS)


def _size(knobs: dict[str, Scalar], network: str, axis: str) -> int:
    name = f"{network}_{axis}_parallelism"
    size = int(knobs.get(name, 1))
    if size < 1:
        raise RequestError(
            f"{name}={size}: a layout must be stated, not left to the device count",
            where=f"--set={name}",
            next_command=f"--set={name}=N with N of 1 or more",
        )
    return size


def explicit(knobs: dict[str, Scalar]) -> dict[str, Scalar]:
    """The layout settings with MaxText's automatic ones written out."""
    return {**dict.fromkeys(MAXTEXT_AUTOMATIC, 1), **{k: v for k, v in knobs.items() if k in AXES}}


# From the innermost: what talks most stays within a node.
PLACED = ("tensor", "context", "fsdp", "data")
ALWAYS_STATED = ("fsdp", "data")  # a recipe's own sizes must not stay in force


def settings_for(share: Parallelism, gpus: int, hardware: Hardware) -> dict[str, Scalar] | None:
    """The settings that make a layout. None: a pipeline, whose schedule MaxText wants to be told by more settings."""
    if share.pipeline > 1 or share.virtual_pipeline > 1:
        return None
    room = gpus if hardware.kind == "cpu" else min(gpus, hardware.devices_per_node)
    found: dict[str, Scalar] = {}
    for axis in PLACED:
        size: int = getattr(share, axis)
        inside = gcd(size, room)
        room //= inside
        if axis == "tensor" and inside < size:
            return None  # it talks in the middle of every layer: not over the network
        for network, part in (("ici", inside), ("dcn", size // inside)):
            if part > 1 or axis in ALWAYS_STATED:
                found[f"{network}_{axis}_parallelism"] = part
    return found
