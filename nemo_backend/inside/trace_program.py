"""Trace the memory, matmuls and messages of Megatron's training step for each pipeline stage, without GPUs or data.

This program runs by path inside NeMo's environment, with only the standard library, torch and Megatron-core (and NeMo
for adapters): `python -P trace_program.py --folder=DIR --jobs=FILE`. The file lists the jobs (`TraceJob` of
benchmarks/compilation/traced.py). The program writes the findings of each job to DIR/NUMBER/report.json. A separate
process traces each stage as the stage's first rank in a fake process group. The model, its wrapper, the optimizer and
the schedule are Megatron's own code. The tensors are fake, so that 70 billion parameters take no memory.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import sys
import time
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

PACKAGES = ["megatron-core", "torch", "nemo-toolkit"]
IN_A_LAYER = ("self_attention", "mlp", "input_layernorm", "pre_mlp_layernorm")

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # Megatron-core compiles some functions when it is imported
redirect = kit.load(HERE / "cpu_redirect.py")
tracing = kit.load(HERE / "trace_ledger.py")
stand_ins = kit.load(HERE / "trace_stand_ins.py")


# --- groups ---------------------------------------------------------------------------------------


def axis_of(group):
    """Return the parallelism axis of a process group, as Stepmark names it, and the group's size."""
    import torch.distributed as dist
    from megatron.core import parallel_state as state

    ranks = dist.get_process_group_ranks(group) if group is not None else range(dist.get_world_size())
    known = {
        "tensor": state.get_tensor_model_parallel_group,
        "pipeline": state.get_pipeline_model_parallel_group,
        "context": state.get_context_parallel_group,
        "data": state.get_data_parallel_group,
        "data and context": lambda: state.get_data_parallel_group(with_context_parallel=True),
        "expert": state.get_expert_model_parallel_group,
        "expert data": state.get_expert_data_parallel_group,
    }
    for axis, get in known.items():
        if dist.get_process_group_ranks(get()) == list(ranks):
            return axis, len(ranks)
    return "embedding", len(ranks)


def make_groups(job, stage):
    """Create fake process groups of all ranks, in which this process is the stage's first rank."""
    import torch.distributed as dist
    from megatron.core import parallel_state
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    from megatron.core.tensor_parallel import random
    from torch.testing._internal.distributed.fake_pg import FakeStore

    share = SimpleNamespace(**job.parallelism)
    rank = stage * (job.devices // share.pipeline)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(job.devices), LOCAL_RANK="0")
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=job.devices)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=share.tensor,
        pipeline_model_parallel_size=share.pipeline,
        virtual_pipeline_model_parallel_size=share.virtual_pipeline if share.virtual_pipeline > 1 else None,
        context_parallel_size=share.context,
        expert_model_parallel_size=share.expert,
        expert_tensor_parallel_size=1,
        create_gloo_process_groups=False,
    )
    random.initialize_rng_tracker(use_te_rng_tracker=False, inference_rng_tracker=True, force_reset=True)
    random._get_all_rng_states, random._set_all_rng_states = (lambda: ()), (lambda *_: None)
    random._fork_rng = contextlib.nullcontext
    in_all = job.traced_micro_batches * job.micro_batch_size * share.data
    init_num_microbatches_calculator(0, None, in_all, job.micro_batch_size, share.data, False)


# --- the model --------------------------------------------------------------------------------------


def config_of(job):
    """Return Megatron's configuration. The fused kernels need a GPU, so stand-ins replace them later."""
    import torch
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    def finalize(*args, **kwargs):
        stand_ins.ledger.ends = True
        finalize_model_grads(*args, **kwargs)

    share = SimpleNamespace(**job.parallelism)
    dtype = torch.float32 if job.dtype == "fp32" else torch.bfloat16
    kind = MLATransformerConfig if job.model.get("multi_latent_attention") else TransformerConfig
    known = {field.name for field in dataclasses.fields(kind)}
    wanted = {name: value for name, value in job.model.items() if name in known}
    modules = wanted.get("recompute_modules")
    if isinstance(modules, str):
        names = (name.strip(" '\"") for name in modules.strip("[]").split(","))
        wanted["recompute_modules"] = [name for name in names if name]
    biases = bool(wanted.get("add_bias_linear"))
    llama = {"bias_activation_fusion": True, "bias_dropout_fusion": not biases, "attention_dropout": 0.0}
    config = kind(
        **{**llama, "add_bias_linear": False, **wanted},
        normalization="RMSNorm",
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        hidden_dropout=0.0,
        deallocate_pipeline_outputs=True,
        perform_initialization=False,
        bf16=job.dtype != "fp32",
        params_dtype=dtype,
        pipeline_dtype=dtype,
        autocast_dtype=dtype,
        tensor_model_parallel_size=share.tensor,
        pipeline_model_parallel_size=share.pipeline,
        virtual_pipeline_model_parallel_size=share.virtual_pipeline if share.virtual_pipeline > 1 else None,
        context_parallel_size=share.context,
        expert_model_parallel_size=share.expert,
        expert_tensor_parallel_size=1,
        cp_comm_type="p2p",
        overlap_p2p_comm=share.virtual_pipeline > 1,
        batch_p2p_comm=False,
        finalize_model_grads_func=finalize,
    )
    config.apply_rope_fusion = has_experts(job) and job.fused_rope  # after Megatron's check for the kernel
    return config


@cache
def expert_stand_ins():
    module = kit.load(HERE / "trace_experts.py")
    module.stand_ins = stand_ins
    return module


def has_experts(job):
    return bool(job.model.get("num_moe_experts"))


def specs(job, config, vp_stage):
    """Return the parts of a model chunk: its layers, and its modules for multi-token prediction."""
    if not has_experts(job):
        return {"transformer_layer_spec": layer_spec(job, config, vp_stage)}
    from megatron.core.models.gpt import gpt_layer_specs as made

    place = {"use_transformer_engine": False, "vp_stage": vp_stage}
    layers = made.get_gpt_decoder_block_spec(config, normalization="RMSNorm", **place)
    expert_stand_ins().repeat_down_projections(layers.layer_specs)
    if not config.mtp_num_layers:
        return {"transformer_layer_spec": layers}
    last = made.get_gpt_decoder_layer_specs(config, normalization="RMSNorm", use_transformer_engine=False)[-1]
    expert_stand_ins().repeat_down_projections([last])
    return {
        "transformer_layer_spec": layers,
        "mtp_block_spec": made.get_gpt_mtp_block_spec(config, last, **place),
    }


def layer_spec(job, config, vp_stage):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build

    layer = get_gpt_layer_local_spec(normalization="RMSNorm")
    parts = layer.submodules
    attention, mlp = parts.self_attention.submodules, parts.mlp.submodules
    if job.fused_attention:
        attention.core_attention = stand_ins.CoreAttention
    size = {"quantized_bytes": job.kept_number_bytes}
    # Except with delayed scaling, linear_proj keeps its input without conversion, because attention also keeps it.
    attention.linear_proj = stand_ins.linear(RowParallelLinear, **size)
    attention.linear_proj.keeps_original = job.fp8_recipe != "delayed"
    attention.linear_qkv = stand_ins.linear(ColumnParallelLinear, **size)
    mlp.linear_fc1 = stand_ins.linear(ColumnParallelLinear, **size)
    mlp.linear_fc2 = stand_ins.linear(RowParallelLinear, **size)
    parts.input_layernorm = parts.pre_mlp_layernorm = stand_ins.Norm
    count = get_num_layers_to_build(config, vp_stage=vp_stage)
    return TransformerBlockSubmodules(layer_specs=[layer] * count, layer_norm=stand_ins.Norm)


def put_kernels(job):
    import torch
    from megatron.core.fusions import fused_bias_swiglu
    from megatron.core.models.common.language_module import language_module
    from megatron.core.transformer import attention
    from megatron.core.utils import GlobalMemoryBuffer

    if job.fused_attention:  # Transformer Engine gathers into a new tensor instead of a shared buffer
        GlobalMemoryBuffer.get_tensor = lambda _, shape, dtype, *__: torch.empty(shape, dtype=dtype)
    # torch.compile turns each function into one kernel without intermediate tensors.
    fused_bias_swiglu.swiglu, fused_bias_swiglu.swiglu_back = stand_ins.swiglu, stand_ins.swiglu_back
    if job.fused_rope:
        attention.apply_rotary_pos_emb = lambda x, *_, **__: stand_ins.FusedRope.apply(x)
    if has_experts(job):
        expert_stand_ins().install(job)
    language_module.te_parallel_cross_entropy = lambda logits, labels, *_: stand_ins.FusedLoss.apply(logits, labels)


def build(job):
    """Return Megatron's configuration and this stage's model chunks in their wrappers."""
    from megatron.core import parallel_state as state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.transformer.module import Float16Module

    config = config_of(job)
    chunks = []
    for vp_stage in range(config.virtual_pipeline_model_parallel_size or 1):
        place = {"ignore_virtual": False, "vp_stage": vp_stage}
        chunks.append(
            GPTModel(
                config,
                **specs(job, config, vp_stage),
                vocab_size=job.model["vocab_size"],
                max_sequence_length=job.sequence_length,
                pre_process=state.is_pipeline_first_stage(**place),
                post_process=state.is_pipeline_last_stage(**place),
                share_embeddings_and_output_weights=job.model["share_embeddings_and_output_weights"],
                position_embedding_type="rope",
                vp_stage=vp_stage,
            )
        )
    for chunk in chunks:
        if has_experts(job):
            expert_stand_ins().keep_as_transformer_engine(chunk, job)
        if job.adapters:
            adapt(chunk, job)
    if config.bf16:
        chunks = [Float16Module(config, chunk) for chunk in chunks]
    known = {field.name for field in dataclasses.fields(DistributedDataParallelConfig)}
    wrapping = DistributedDataParallelConfig(**{name: value for name, value in job.ddp.items() if name in known})
    wrapped = [
        DistributedDataParallel(config, wrapping, chunk, disable_bucketing=number > 0)
        for number, chunk in enumerate(chunks)
    ]
    if job.fused_attention:
        for module in (one for chunk in chunks for one in chunk.modules() if hasattr(one, "is_stand_in")):
            if module.weight.requires_grad and config.gradient_accumulation_fusion:
                del module.weight.grad_added_to_main_grad  # with it, Megatron makes a dummy gradient each time
                stand_ins.ledger.dummies[tuple(module.weight.shape)] = None
    return config, wrapped


def adapt(chunk, job):
    """Add NeMo's adapters to a chunk."""
    from nemo.collections.llm import fn

    adapters = kit.load(HERE / "adapters.py")
    adapters.without_transformer_engine()
    peft = kit.load(HERE / "build.py").adapters_of({"peft": job.adapters}, adapters)
    chunk.requires_grad_(False)
    fn.walk(chunk, peft.transform)
    for module in chunk.modules():
        if hasattr(module, "to_wrap") and "ColumnParallelLinear" in str(type(module.to_wrap).__mro__):
            module.to_wrap.returns_norm = True


# --- a step -----------------------------------------------------------------------------------------


def hold_state(ledger, job, chunks):
    """Add this rank's parameters, gradients and optimizer state to the ledger.

    Return how many parameters this rank's optimizer updates.
    """
    import torch
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    for chunk in chunks:
        for buffer in [*chunk.buffers, *chunk.expert_parallel_buffers]:
            ledger.hold("gradients", [buffer.grad_data], "buffer")
            ledger.hold("parameters", [one for one in [buffer.param_data] if one is not None], "buffer")
        for name, parameter in chunk.named_parameters():
            ledger.hold("parameters", [parameter], tracing.label_of(name.rpartition(".")[0]))
    wanted = {"optimizer": "adam", "bf16": job.dtype != "fp32", "lr": 1e-4}
    wanted["use_distributed_optimizer"] = job.ddp["use_distributed_optimizer"]
    optimizer = get_megatron_optimizer(OptimizerConfig(**wanted), chunks, use_gloo_process_groups=False)
    updated = sum(
        parameter.numel()
        for part in getattr(optimizer, "chained_optimizers", [optimizer])
        for group in part.optimizer.param_groups
        for parameter in group["params"]
    )
    ledger.optimizer = torch.empty(updated * job.optimizer_bytes, dtype=torch.uint8)
    ledger.hold("optimizer", [ledger.optimizer], "moments and master weights")
    return updated


def run_step(job, config, chunks, ledger):
    """Run Megatron's own schedule. Return module -> the bytes that the module keeps, per layer and micro-batch."""
    import torch
    from megatron.core.pipeline_parallel import get_forward_backward_func

    shape = (job.micro_batch_size, job.sequence_length // config.context_parallel_size)
    kept = {}

    def forward_step(_, chunk):
        tokens, positions, labels = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
        before = ledger.kept()
        output = chunk(tokens, positions, None, labels=labels)
        if not kept:
            layers = len(inner(chunk).decoder.layers)
            new = (ledger.kept() - before).items()
            kept.update({name: size / layers for name, size in new if not name or name.startswith(IN_A_LAYER)})

        def loss_of(losses):
            loss = losses.float().mean()
            return loss, {"loss": loss.detach()}

        return output, loss_of

    get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=[None] * len(chunks) if len(chunks) > 1 else None,
        model=chunks if len(chunks) > 1 else chunks[0],
        num_microbatches=job.traced_micro_batches,
        seq_length=job.sequence_length,
        micro_batch_size=job.micro_batch_size,
        decoder_seq_length=job.sequence_length,
        forward_only=False,
    )
    if job.ddp["use_distributed_optimizer"]:
        ledger.ends = True
        for chunk in chunks:
            chunk.start_param_sync(force_sync=True)
    ledger.look()
    return kept


def inner(chunk):
    """Return the model without its wrappers."""
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


def trace_stage(job, stage):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    begun = time.perf_counter()
    ledger = stand_ins.ledger = tracing.Ledger()
    make_groups(job, stage)
    put_kernels(job)
    torch.nn.Module.bfloat16 = lambda module: module  # already bf16, and fake parameters cannot be replaced
    with FakeTensorMode(allow_non_fake_inputs=True):
        config, chunks = build(job)
        ledger.vocabulary = job.model["vocab_size"] // config.tensor_model_parallel_size
        for chunk in chunks:
            chunk.train()
            ledger.watch(chunk)
        updated = hold_state(ledger, job, chunks)
        ledger.sent.clear()  # the model's construction is not part of a step
        ledger.calls.clear()
        with ledger:
            kept = run_step(job, config, chunks, ledger)
    return {
        "stage": stage,
        "layers": sum(len(inner(chunk).decoder.layers) for chunk in chunks),
        "parameters": sum(parameter.numel() for chunk in chunks for parameter in chunk.parameters()),
        # Weights of experts are shared by an expert group, all others by a tensor group.
        "shared_parameters": sum(
            one.numel() * job.parallelism["tensor" if getattr(one, "allreduce", True) else "expert"]
            for chunk in chunks
            for one in chunk.parameters()
        ),
        "updated_parameters": updated,
        "kept_in_a_layer": kept,
        "operators": ledger.operators,
        "seconds": time.perf_counter() - begun,
        **ledger.report(job.micro_batches / job.traced_micro_batches),
    }


# --- the jobs ---------------------------------------------------------------------------------------


def trace(job, folder):
    """Trace each stage in a separate process, and write report.json. Return the exit code of a failed stage, or 0."""
    found = []
    for stage in job.stages:
        part = folder / f"stage-{stage}.json"
        work = partial(trace_stage, job, stage)
        code = kit.in_a_fork(folder / "log", lambda part=part, work=work: part.write_text(json.dumps(work())))
        if code:
            return code
        found.append(json.loads(part.read_bytes()))
    report = {
        "versions": kit.installed_versions(PACKAGES),
        "devices": job.devices,
        "mesh": {axis: size for axis, size in job.parallelism.items() if size > 1},
        "parameters": sum(one.pop("shared_parameters") for one in found),
        "peak_bytes": max(one["peak_bytes"] for one in found),
        "traced_micro_batches": job.traced_micro_batches,
        "stages": found,
        "replaced": job.replaced,
    }
    kit.write_report(folder, report)
    return 0


def prepare(jobs):
    if not redirect.install():
        raise SystemExit("this program runs only without a visible GPU: set CUDA_VISIBLE_DEVICES to an empty value")
    tracing.record_collectives(lambda: stand_ins.ledger, axis_of)
    # Replace Apex's module, which has the kernels that add a weight's gradient to a buffer.
    names = ("wgrad_gemm_accum_fp32", "wgrad_gemm_accum_fp16")
    sys.modules["fused_weight_gradient_mlp_cuda"] = SimpleNamespace(**dict.fromkeys(names, stand_ins.add_to_buffer))
    importlib.import_module("megatron.core.models.gpt")  # before the forks, so that no fork has to import it
    if any(job.adapters for job in jobs):
        importlib.import_module("nemo.collections.llm")


if __name__ == "__main__":
    sys.exit(kit.do_jobs(__doc__, "tracing", prepare, trace))
