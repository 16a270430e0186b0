"""MaxText's mesh axes in common words: ici_* within a node (or one machine), dcn_* between nodes."""

from math import prod

from benchmarks.errors import RequestError
from benchmarks.values import Parallelism, Scalar

# axis of MaxText's mesh -> Stepmark's word for what it shares
AXIS_WORDS = {
    "data": "data",
    "fsdp": "fsdp",
    "fsdp_transpose": "fsdp",
    "sequence": "context",
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
