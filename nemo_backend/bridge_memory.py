"""How Megatron-Bridge shares out a model and stores what a training step needs. Pure."""

import msgspec

from benchmarks.capacity import Storage
from benchmarks.values import Benchmark, Parallelism, Scalar
from nemo_backend import layout, memory
from nemo_backend.bridge_planning import FSDP

DISTRIBUTED_OPTIMIZER = "ddp.use_distributed_optimizer"  # what a pretraining recipe has without saying so
GRADIENTS_IN_FP32 = "mixed_precision.grad_reduce_in_fp32"


def parallelism(knobs: dict[str, Scalar], gpus: int) -> Parallelism:
    """As Megatron shares it; under Megatron FSDP the replicas share out the parameters too."""
    share = layout.parallelism(knobs, gpus)
    return msgspec.structs.replace(share, data=1, fsdp=share.data) if knobs.get(FSDP) else share


def storage(benchmark: Benchmark) -> Storage:
    share, knobs = benchmark.parallelism, benchmark.knobs
    replicas = share.data * share.context if knobs.get(DISTRIBUTED_OPTIMIZER, benchmark.task == "pretrain") else 1
    return Storage(
        saved_activations=_saved(knobs),
        one_byte_activations=memory.MATMUL_INPUTS if benchmark.dtype == "fp8" else frozenset(),
        weight_bytes=2,
        gradient_bytes=4 if knobs.get(GRADIENTS_IN_FP32, True) else 2,
        optimizer_bytes=12,  # two moments and a master weight
        optimizer_replicas=replicas,
        gathers_layers=bool(knobs.get(FSDP, False)),
        writes_attention_scores=False,
        usable_fraction=memory.USABLE,
        recompute=memory.recompute(benchmark, "model"),
    )


def _saved(knobs: dict[str, Scalar]) -> frozenset[str]:
    """Only what is sure to stay: of layers that are computed twice or wait in the host's memory, their input."""
    partly = knobs.get("model.recompute_granularity") == "full" or knobs.get("model.cpu_offloading", False)
    return frozenset() if partly else memory.ALL_ACTIVATIONS
