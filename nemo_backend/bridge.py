"""The engine `bridge`: NVIDIA's Megatron-Bridge, planned and read. GPU only; nothing of it is imported.

What a run is started with is in bridge_planning.py, what is refused in bridge_refusals.py, how its logs are read in
bridge_reading.py, which settings and recipes there are in bridge_settings.yml; how it stores a model is here.
"""

import msgspec

from benchmarks.planning.capacity import Storage
from benchmarks.values import Benchmark, Parallelism, Scalar
from nemo_backend import layout, memory
from nemo_backend.bridge_planning import (
    FSDP,
    RESERVED,
    environment,
    hub_repository,
    is_benchmark_recipe,
    plan,
    settings,
)
from nemo_backend.bridge_refusals import refusals, refuses_hardware

__all__ = [
    "RESERVED",
    "environment",
    "hub_repository",
    "parallelism",
    "plan",
    "refusals",
    "refuses_hardware",
    "settings",
    "storage",
]

MODEL, OPTIMIZER = "model", "optimizer"

DISTRIBUTED_OPTIMIZER = "ddp.use_distributed_optimizer"  # what a pretraining recipe has without saying so
GRADIENTS_IN_FP32 = "mixed_precision.grad_reduce_in_fp32"


def parallelism(knobs: dict[str, Scalar], gpus: int) -> Parallelism:
    """As Megatron shares it; under Megatron FSDP the replicas share out the parameters too."""
    share = layout.parallelism(knobs, gpus)
    return msgspec.structs.replace(share, data=1, fsdp=share.data) if knobs.get(FSDP) else share


def storage(benchmark: Benchmark) -> Storage:
    share, knobs = benchmark.parallelism, benchmark.knobs
    distributed = knobs.get(DISTRIBUTED_OPTIMIZER, benchmark.task == "pretrain")
    loss = "te" if is_benchmark_recipe(benchmark) else "native"
    return Storage(
        saved_activations=memory.saved_activations(benchmark, MODEL),
        one_byte_activations=memory.MATMUL_INPUTS if benchmark.dtype == "fp8" else frozenset(),
        weight_bytes=2,
        gradient_bytes=4 if knobs.get(GRADIENTS_IN_FP32, True) else 2,
        optimizer_bytes=memory.optimizer_bytes(benchmark, OPTIMIZER),
        optimizer_replicas=share.data * share.context if distributed else 1,
        gathers_layers=bool(knobs.get(FSDP, False)),
        writes_attention_scores=False,
        usable_fraction=memory.USABLE,
        recompute=memory.recompute(benchmark, MODEL),
        logit_number_bytes=memory.logit_number_bytes(benchmark, MODEL, loss),
        input_only_layers=memory.input_only_layers(benchmark, MODEL),
        recomputed_together=memory.recomputed_together(benchmark, MODEL),
        absent_layers=memory.absent_layers(benchmark, MODEL),
        returned_bytes=2 if distributed else None,
        uncounted=memory.uncounted(benchmark, MODEL, OPTIMIZER),
    )
