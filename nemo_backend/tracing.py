"""Make the request to trace_program.py, which traces a training step on a machine without the benchmark's GPUs."""

import json

from benchmarks.backend import SideProgram
from benchmarks.compilation.traced import TraceJob
from benchmarks.errors import RequestError
from benchmarks.model.capacity import compute_bytes
from benchmarks.request.framework import program
from benchmarks.values import QUANTIZED, Benchmark, to_builtins
from nemo_backend import experts, layout, lora, memory, planning
from nemo_backend.megatron import dimensions

PROGRAM = SideProgram(
    command=[
        *program("nemo_backend/inside/trace_program.py"),
        "--folder={phase_dir}",
        "--jobs={phase_dir}/request.json",
    ],
    environment={"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"},
)

# inside/trace_stand_ins.py follows the source of this version, commit d0067d0 of 2026-08-22.
TRANSFORMER_ENGINE = "2.20.0.dev0"
# Settings of Megatron's configuration that need a GPU, or that the trace program sets itself.
DROPPED = (
    "apply_rope_fusion", "attention_backend", "context_parallel_size", "cross_entropy_fusion_impl",
    "disable_parameter_transpose_cache", "enable_cuda_graph", "cuda_graph_impl", "cuda_graph_scope",
    "deallocate_pipeline_outputs", "expert_model_parallel_size", "expert_tensor_parallel_size",
    "external_cuda_graph", "init_model_with_meta_device", "masked_softmax_fusion",
    "moe_flex_dispatcher_backend", "moe_permute_fusion",
    "moe_router_fusion", "moe_shared_expert_overlap", "persist_layer_norm", "pipeline_model_parallel_size",
    "tensor_model_parallel_size", "tp_comm_overlap", "use_te_rng_tracker", "use_transformer_engine_op_fuser",
    "virtual_pipeline_model_parallel_size",
)  # fmt: skip
NOT_TRACED = (layout.FSDP, "model.cpu_offloading", "model.config.cpu_offloading")


def job(name: str, benchmark: Benchmark) -> TraceJob:
    _refuse(benchmark)
    engine, knobs, share, batch = benchmark.engine, benchmark.settings.knobs, benchmark.parallelism, benchmark.batch
    storage = memory.storage(benchmark)
    given = memory.below(memory.PLACES[engine][0], knobs)
    fused = not storage.writes_attention_scores
    group = int(given.get("microbatch_group_size_per_vp_stage", share.pipeline))
    model: dict[str, object] = {
        "gradient_accumulation_fusion": fused,
        "cross_entropy_loss_fusion": True,
        "moe_token_dispatcher_type": "alltoall",  # of Megatron-Bridge's models, not Megatron's default
        **({"attention_softmax_in_fp32": False} if engine == "nemo" else {}),  # NeMo's default, not Megatron's
        **{key: value for key, value in given.items() if key not in DROPPED and value != "null"},
        **_architecture(benchmark),
        **{key.rpartition(".")[2]: value for key, value in dimensions(benchmark.model, "model").items()},
        "sequence_parallel": memory.shards_sequences(benchmark),
        "cross_entropy_fusion_impl": memory.loss_of(benchmark, given),
    }
    if benchmark.hardware.kind == "cpu":
        model |= memory.below("model.config", planning.ON_A_CPU)
    return TraceJob(
        name=name,
        devices=benchmark.gpus,
        parallelism={axis: size for axis, size in to_builtins(share).items() if axis != "fsdp"},
        stages=list(range(share.pipeline)),
        micro_batches=batch.gradient_accumulation,
        # Enough micro-batches to fill the pipeline twice. More micro-batches would not add memory.
        traced_micro_batches=min(batch.gradient_accumulation, 2 * max(group, share.pipeline)),
        micro_batch_size=batch.micro_batch_size,
        sequence_length=batch.sequence_length,
        dtype=benchmark.dtype,
        kept_number_bytes=storage.quantized_number_bytes if benchmark.dtype in QUANTIZED else None,
        fp8_recipe=str(knobs.get(memory.FP8_RECIPES[engine], "")),
        model=model,
        ddp={
            "grad_reduce_in_fp32": storage.numbers.gradient_bytes > compute_bytes(benchmark),
            "use_distributed_optimizer": memory.is_distributed(benchmark),
        },
        adapters=_adapters(benchmark),
        optimizer_bytes=storage.numbers.optimizer_bytes,
        fused_attention=fused,
        fused_rope=fused and bool(given.get("apply_rope_fusion", True)),
        replaced=_replaced(benchmark, fused=fused),
    )


def _architecture(benchmark: Benchmark) -> dict[str, object]:
    """Return Megatron's settings of a model with experts, whose kernels need a GPU; none for a dense model."""
    if benchmark.model.experts is None:
        return {}
    texts = experts.architecture(benchmark.model)
    kernels = {"moe_grouped_gemm": True, "moe_router_dtype": "fp32", "rope_type": "rope"}
    return kernels | {name: json.loads(text if text[0] not in "lv" else f'"{text}"') for name, text in texts.items()}


def _refuse(benchmark: Benchmark) -> None:
    kernels = not memory.storage(benchmark).writes_attention_scores
    if benchmark.model.experts and (benchmark.lora or not kernels):
        raise RequestError(
            f"a step of {benchmark.model.name} {'with adapters' if kernels else 'without Transformer Engine'} "
            "cannot be traced",
            where=f"--model={benchmark.model.name}",
            why="of a model with experts, a trace follows all weights and the kernels of Transformer Engine",
            next_command="python launch/plan.py estimate --help",
        )
    found = next((name for name in NOT_TRACED if benchmark.settings.knobs.get(name)), None)
    if found is not None:
        raise RequestError(
            f"a step with {found} cannot be traced",
            where=f"--set={found}",
            why="a trace does not follow tensors that move between replicas (FSDP) or to the host (offloading)",
            next_command="python launch/plan.py estimate --help",
        )


def _adapters(benchmark: Benchmark) -> dict[str, object]:
    if benchmark.lora is None:
        return {}
    return {
        "target_modules": lora.target_names(benchmark.settings.knobs),
        "dim": benchmark.lora.rank,
        "alpha": int(benchmark.lora.alpha),
        "dropout": 0.0,
    }


def _replaced(benchmark: Benchmark, *, fused: bool) -> dict[str, str]:
    read = f"a stand-in that keeps the same tensors as Transformer Engine {TRANSFORMER_ENGINE}"
    found = {"kernels": f"attention, norm, rope and loss: {read}"} if fused else {"norm": read}
    if benchmark.model.experts and fused:
        found["experts"] = (
            f"grouped matmuls and the router's top-k: {read}; every device gets the same number of rows, and "
            "the exchange needs no other buffers"
        )
    if benchmark.dtype in QUANTIZED:
        size = memory.storage(benchmark).quantized_number_bytes
        found[benchmark.dtype] = (
            f"weights are bf16, as large as 8-bit weights with transposes; kept inputs take {size:g} bytes a number"
        )
    return found
