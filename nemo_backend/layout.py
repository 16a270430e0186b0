"""Convert Megatron's parallel sizes to a Parallelism and back. GPUs divided by all other sizes is the data size."""

from benchmarks.errors import RequestError
from benchmarks.request.settings import positive
from benchmarks.values import Hardware, Parallelism, Scalar

# Both engines have settings of these names, in different groups (PLACES).
SIZES = {
    "tensor": "tensor_model_parallel_size",
    "pipeline": "pipeline_model_parallel_size",
    "context": "context_parallel_size",
    "virtual_pipeline": "virtual_pipeline_model_parallel_size",
}
PLACES = {"nemo": "trainer.strategy", "bridge": "model"}
FSDP_ENGINE, FSDP = "bridge", "ddp.use_megatron_fsdp"
EXPERT = "model.expert_model_parallel_size"  # only Megatron-Bridge trains models with experts
SETTINGS = frozenset((EXPERT, *(f"{place}.{size}" for place in PLACES.values() for size in SIZES.values())))


def parallelism(knobs: dict[str, Scalar], gpus: int) -> Parallelism:
    sizes = {word: _size(knobs, size) for word, size in SIZES.items()}
    replica = sizes["tensor"] * sizes["pipeline"] * sizes["context"]
    data, rest = divmod(gpus, replica)
    if rest:
        raise RequestError(
            f"{gpus} GPUs are not a multiple of tensor {sizes['tensor']} x pipeline {sizes['pipeline']} "
            f"x context {sizes['context']} = {replica}",
            where="--gpus and --set",
            why="TP x PP x CP x DP = GPUs: one replica of the model needs TP x PP x CP, and DP counts the replicas",
            next_command=f"--gpus={-(-gpus // replica) * replica}",
        )
    sizes["expert"] = positive(f"--set={EXPERT}", int(knobs.get(EXPERT, 1)))
    if knobs.get(FSDP):  # Megatron FSDP: the replicas also shard the parameters
        return Parallelism(fsdp=data, **sizes)
    return Parallelism(data=data, **sizes)


def _size(knobs: dict[str, Scalar], name: str) -> int:
    """Return a size from the setting of either engine. A later check refuses settings of the wrong engine."""
    places = (f"{place}.{name}" for place in PLACES.values())
    return max((positive(f"--set={key}", int(knobs[key])) for key in places if key in knobs), default=1)


def settings_for(engine: str, share: Parallelism, hardware: Hardware) -> dict[str, Scalar] | None:
    """Return the settings of a layout; None if the engine does not support its FSDP, or a tensor group spans nodes.

    Only Megatron-Bridge supports FSDP, and only over all replicas. The recipe enables it, without other sizes here.
    """
    sharded = share.fsdp > 1 and (engine != FSDP_ENGINE or share.data > 1)
    experts: dict[str, Scalar] = {EXPERT: share.expert} if share.expert > 1 else {}
    if sharded or (experts and engine != "bridge"):
        return None
    if hardware.kind != "cpu" and share.tensor > hardware.devices_per_node:
        return None
    place = PLACES[engine]
    sizes: dict[str, Scalar] = {f"{place}.{size}": getattr(share, word) for word, size in SIZES.items()}
    # Megatron refuses sequence parallelism if the tensor size is 1, and requires it if the tensor size is larger.
    return {**sizes, **experts, f"{place}.sequence_parallel": share.tensor > 1 and hardware.kind != "cpu"}
