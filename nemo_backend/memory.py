"""How Megatron stores the state of a training step, and what it recomputes instead of keeping it."""

import re
from collections.abc import Mapping

from benchmarks.model.capacity import ATTENTION, DENSE_MLP, FLOAT32_BYTES, SPARSE_MLP, compute_bytes
from benchmarks.model.ledger import LAYER_MATMULS
from benchmarks.request.framework import text_of
from benchmarks.values import EIGHT_BIT, QUANTIZED, Benchmark, NumberBytes, Recompute, Scalar, Storage
from nemo_backend import bridge_planning, experts, layout, megatron, planning
from nemo_backend.bridge_planning import is_benchmark_recipe
from nemo_backend.layout import FSDP

# Estimated share of a GPU's memory for tensors. CUDA's context, NCCL's buffers and fragmentation take the rest.
USABLE = 0.94

# Engine -> the settings groups of the model and the optimizer. The other tables: engine -> the name of one setting.
PLACES = {"nemo": ("model.config", "optim.config"), "bridge": ("model", "optimizer")}
DISTRIBUTED = {"nemo": "optim.config.use_distributed_optimizer", "bridge": "ddp.use_distributed_optimizer"}
FP8_RECIPES = {"nemo": "trainer.plugins.fp8_recipe", "bridge": "mixed_precision.fp8_recipe"}
REDUCED_IN_FP32 = {
    "nemo": "trainer.plugins.grad_reduce_in_fp32",
    "bridge": "mixed_precision.grad_reduce_in_fp32",
}

# Every activation of a layer that its backward pass reads without recomputation. The output of the MLP is not among
# them, because it is the next layer's input.
ALL_ACTIVATIONS = frozenset({"attention_norm", "qkv_proj", "context", "out_proj", "mlp_norm", "mlpwi", "mlp_product"})

# Transformer Engine keeps the input of an fp8 matmul in fp8. Attention's output matrix does so only with delayed
# scaling, because attention keeps the same numbers in bf16 anyway.
ONE_BYTE = frozenset(
    {
        *("attention_norm", "mlp_norm", "mlp_product", "context_in_fp8"),
        *("latent_norm", "routed_input", "routed_product", "shared_product"),
    }
)
# With the scales: one byte for 32 numbers in MXFP8. NVFP4 has half a byte a number, and a byte for 16 of them.
QUANTIZED_NUMBER_BYTES = {"fp8": 1.0, "mxfp8": 1.0, "nvfp4": 1 / 2 + 1 / 16}
SHARES = {"attention_norm": "attention_norm_share", "mlp_norm": "mlp_norm_share"}

# Activation -> the matrices of flops.ADAPTED_MATRICES that read it. A frozen matrix does not keep its input, but an
# adapter does.
INPUT_OF = {
    "attention_norm": frozenset({"query_key_value", "query", "key", "value"}),
    "mlp_norm": frozenset({"mlp_input", "gate", "up"}),
    "mlp_product": frozenset({"mlp_output"}),
}

# Without sequence parallelism, each device of a tensor group holds these whole.
HIDDEN_STATES = frozenset({"layer_input", "attention_norm", "out_proj", "mlp_norm", "mlpwo"})

# Tensors as large as the scores in the backward pass of Megatron's unfused attention: the scores, their masked copy,
# and three copies of their gradient.
SCORE_COPIES = 5

Settings = Mapping[str, Scalar]  # settings of the model or the optimizer, by Megatron's names


def storage(benchmark: Benchmark) -> Storage:
    engine, share, knobs = benchmark.engine, benchmark.parallelism, benchmark.settings.knobs
    model, optimizer = (below(place, knobs) for place in PLACES[engine])
    whole = benchmark.dtype == "fp32"
    distributed = is_distributed(benchmark)
    again = _recomputed_layers(benchmark, model)
    modules = _modules(model)
    needs = (bridge_planning if engine == "bridge" else planning).needs_transformer_engine(benchmark)
    fused = not megatron.lacks_transformer_engine(benchmark, needs)
    trained = benchmark.lora is None
    targets = frozenset(benchmark.lora.targets if benchmark.lora else ())
    unneeded = frozenset(name for name, matrices in INPUT_OF.items() if not (trained or matrices & targets))
    one_byte = ONE_BYTE if trained else frozenset(SHARES.values()) | unneeded
    return Storage(
        saved_activations=_saved(benchmark, modules, unneeded, fused=fused),
        one_byte_activations=one_byte if benchmark.dtype in QUANTIZED else frozenset(),
        quantized_number_bytes=QUANTIZED_NUMBER_BYTES.get(benchmark.dtype, 1.0),
        numbers=NumberBytes(
            weight_bytes=4 if whole else 2,
            gradient_bytes=4 if whole or knobs.get(REDUCED_IN_FP32[engine], True) else 2,
            optimizer_bytes=_optimizer_bytes(benchmark, optimizer),
            logit_number_bytes=_logit_number_bytes(benchmark, model),
            returned_bytes=2 if distributed and not whole else None,
        ),
        optimizer_replicas=share.data * share.context if distributed else 1,
        expert_shards=share.expert if benchmark.model.experts else None,
        gathers_layers=bool(knobs.get(FSDP, False)),
        writes_attention_scores=not fused,
        score_bytes=SCORE_COPIES * compute_bytes(benchmark),
        usable_fraction=USABLE,
        recompute=_recompute(model, modules, again, sparse=benchmark.model.experts is not None),
        input_only_layers=again,
        recomputed_together=_recomputed_together(benchmark, model),
        absent_layers=_absent_layers(model, benchmark.model.layers - again),
        whole_activations=_whole(benchmark, unneeded),
        unneeded_activations=unneeded,
        dummy_gradients=trained and fused and bool(model.get("gradient_accumulation_fusion", True)),
        uncounted=_uncounted(benchmark, modules),
        stages=_stages(benchmark) if benchmark.model.experts and trained else (),
        # Half of the copies of rows that exist at once: Megatron's all-to-all has four, HybridEP and DeepEP have one.
        dispatched_rows=2.0 if model.get("moe_token_dispatcher_type", "alltoall") == "alltoall" else 0.5,
    )


def shards_sequences(benchmark: Benchmark) -> bool:
    """Return whether the run uses sequence parallelism. On Megatron-Bridge, it is the default for tensor groups."""
    implied = benchmark.engine == "bridge" and benchmark.parallelism.tensor > 1
    return bool(benchmark.settings.knobs.get(f"{layout.PLACES[benchmark.engine]}.sequence_parallel", implied))


def _saved(benchmark: Benchmark, modules: set[str], unneeded: frozenset[str], *, fused: bool) -> frozenset[str]:
    if benchmark.model.experts:
        return _saved_with_experts(benchmark, modules)
    found = ALL_ACTIVATIONS.difference(unneeded, *(NOT_KEPT.get(name, frozenset()) for name in modules))
    if not fused:
        found |= {"rotated"}
    scaling = benchmark.settings.knobs.get(FP8_RECIPES[benchmark.engine])
    if benchmark.dtype == "fp8" and benchmark.lora is None and scaling == "delayed":
        found |= {"context_in_fp8"}  # with other scalings, no copy of attention's output is kept in fp8
    if benchmark.lora and shards_sequences(benchmark):
        found |= {share for name, share in SHARES.items() if name in found}
    return found


def _saved_with_experts(benchmark: Benchmark, modules: set[str]) -> frozenset[str]:
    attention = benchmark.model.attention
    found = (ATTENTION | DENSE_MLP | SPARSE_MLP).difference(*(NOT_KEPT.get(name, frozenset()) for name in modules))
    if not attention.query_key_norms:
        found -= {"rotated"}  # otherwise, the norms of query and key keep their inputs
    if "layernorm" in modules:  # only a norm that is not fused with the next matmul
        found -= {"router_input", *(["attention_norm"] if attention.latent else [])}
    return found


def _stages(benchmark: Benchmark) -> tuple[str, ...]:
    """Return the content of each part of the pipeline, from the setting that lists it or by Megatron's even split."""
    share, model, knobs = benchmark.parallelism, benchmark.model, benchmark.settings.knobs
    pattern = str(knobs.get(experts.STAGES, "null"))
    if pattern != "null":
        pattern = re.sub(r"\(([^()]*)\)\*(\d+)", lambda part: part[1] * int(part[2]), pattern)
        return tuple(re.sub(r"(\w)\*(\d+)", lambda part: part[1] * int(part[2]), pattern).split("|"))
    parts = share.pipeline * share.virtual_pipeline
    first, last = (knobs.get(name) is True for name in experts.COUNTED_AS_LAYERS)
    each = -(-(model.layers + first + last) // parts)
    layers = [each - (first and part == 0) - (last and part == parts - 1) for part in range(parts)]
    layers[-1] += model.layers - sum(layers)
    texts = ["t" * count for count in layers]
    texts[0] = f"E{texts[0]}"
    texts[-1] += "m" * model.mtp_modules + "L"
    return tuple(texts)


def _whole(benchmark: Benchmark, unneeded: frozenset[str]) -> frozenset[str]:
    """Return the activations that a device holds whole: hidden states, or those that adapters gather."""
    if not shards_sequences(benchmark):
        return HIDDEN_STATES
    return frozenset(SHARES) - unneeded if benchmark.lora else frozenset()


def is_distributed(benchmark: Benchmark) -> bool:
    """Return whether the replicas shard the optimizer state, the default for pretraining on Megatron-Bridge."""
    implied = benchmark.engine == "bridge" and benchmark.task == "pretrain"
    return bool(benchmark.settings.knobs.get(DISTRIBUTED[benchmark.engine], implied))


def below(place: str, knobs: Settings) -> dict[str, Scalar]:
    beginning = f"{place}."
    return {name.removeprefix(beginning): value for name, value in knobs.items() if name.startswith(beginning)}


def _logit_number_bytes(benchmark: Benchmark, model: Settings) -> int:
    """Return the bytes per logit. Transformer Engine's loss overwrites the logits; others add a float32 copy."""
    fused = model.get("cross_entropy_loss_fusion", True) and loss_of(benchmark, model) == "te"
    return compute_bytes(benchmark) + (0 if fused or benchmark.dtype == "fp32" else FLOAT32_BYTES)


def loss_of(benchmark: Benchmark, model: Settings) -> str:
    """Return the implementation of a fused loss: te or native."""
    usual = "te" if benchmark.engine == "bridge" and is_benchmark_recipe(benchmark) else "native"
    return str(model.get("cross_entropy_fusion_impl", usual))


def _absent_layers(model: Settings, kept_whole: int) -> int:
    """Return the number of layers whose activations are in the host's memory at the end of the forward pass."""
    if not model.get("cpu_offloading", False) or not model.get("cpu_offloading_activations", True):
        return 0
    return min(int(model.get("cpu_offloading_num_layers", 0)), kept_whole)


# --- the optimizer ------------------------------------------------------------------------------

NUMBER_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1}
MOMENTS = ("exp_avg_dtype", "exp_avg_sq_dtype")
MASTER = "main_params_dtype"


def _optimizer_bytes(benchmark: Benchmark, optimizer: Settings) -> int:
    """Return the bytes per parameter: two moments (one for SGD), and a master weight in mixed precision."""
    if optimizer.get("use_precision_aware_optimizer", False) and benchmark.dtype != "fp32":
        master = _number_bytes(optimizer.get(MASTER))
        # This optimizer stores only the half of a float32 master weight that the bfloat16 weight lacks. With fp8
        # weights or Megatron FSDP, Megatron itself stores whole master weights.
        halves = optimizer.get("store_param_remainders", True) and master == FLOAT32_BYTES
        kept_by_megatron = benchmark.dtype in EIGHT_BIT or benchmark.settings.knobs.get(FSDP, False)
        moments = sum(_number_bytes(optimizer.get(name)) for name in MOMENTS)
        return moments + (2 if halves and not kept_by_megatron else master)
    moment_bytes = 4 if optimizer.get("optimizer") == "sgd" else 8
    return moment_bytes if benchmark.dtype == "fp32" else moment_bytes + 4


def _number_bytes(value: Scalar | None) -> int:
    """Return the bytes of a number type; those of float32 if it is missing or unknown (see `_uncounted`)."""
    return NUMBER_BYTES.get(_type_name(value), FLOAT32_BYTES)


def _type_name(value: Scalar | None) -> str:
    return str(value or "float32").removeprefix("torch.")


# Settings that change a device's memory by an unknown amount.
NOT_COUNTED = ("cpu_offloading_weights", "distribute_saved_activations", "fine_grained_activation_offloading")


def _uncounted(benchmark: Benchmark, modules: set[str]) -> tuple[str, ...]:
    """Return the requested settings that the memory estimate ignores, as typed."""
    knobs = benchmark.settings.knobs
    model, optimizer = PLACES[benchmark.engine]
    switches = [*(f"{model}.{name}" for name in NOT_COUNTED), f"{optimizer}.optimizer_cpu_offload"]
    found = [name for name in switches if knobs.get(name, False)]
    types = [f"{optimizer}.{name}" for name in (*MOMENTS, MASTER)]
    found += [name for name in types if _type_name(knobs.get(name)) not in NUMBER_BYTES]
    if not modules <= MODULES.keys() | NOT_KEPT.keys():
        found.append(f"{model}.recompute_modules")
    return tuple(f"{name}={text_of(knobs[name])}" for name in found)


# --- recomputation ------------------------------------------------------------------------------

# Module of selective recomputation -> its matmuls. Megatron runs the whole forward pass of a module again, including
# its last matmul, whose output is not needed.
MODULES: dict[str, frozenset[str]] = {
    "core_attn": frozenset({"context"}),
    "mlp": frozenset({"mlpwi_0", "mlpwi_1", "mlpwo"}),
    "layernorm": frozenset(),
    "moe_act": frozenset(),
}
SELECTED = "core_attn"  # the default
# Recomputed module -> activations that it does not keep. core_attn is a fused kernel, which never keeps scores. The
# MLP keeps the input of its norm. `layernorm` saves nothing, because the norm is fused with the next matmul.
NOT_KEPT: dict[str, frozenset[str]] = {
    "mlp": DENSE_MLP,
    "mla_up_proj": frozenset({"qkv_proj", "latent_norm"}),
    "moe_act": frozenset({"routed_product"}),
    "moe": SPARSE_MLP - {"router_input"},
    "shared_experts": frozenset({"shared_wi", "shared_product"}),
}


def _recompute(model: Settings, modules: set[str], again: int, *, sparse: bool) -> Recompute | None:
    """Return the meaning of Megatron's recompute_* settings; None for modules of only some layers or with experts."""
    if model.get("recompute_granularity") == "full":
        return Recompute(matmuls=frozenset(LAYER_MATMULS), layers=again if _by_block(model) else None)
    if not modules <= MODULES.keys() or (sparse and "mlp" in modules):
        return None
    return Recompute(matmuls=frozenset().union(*(MODULES[name] for name in modules)))


def _modules(model: Settings) -> set[str]:
    """Return the modules that selective recomputation recomputes."""
    if model.get("recompute_granularity") != "selective":
        return set()
    text = str(model.get("recompute_modules", SELECTED))  # [core_attn, mlp] or core_attn,mlp
    return {name.strip(" '\"") for name in text.strip("[]").split(",")} - {""}


def _by_block(model: Settings) -> bool:
    return model.get("recompute_method") == "block" and model.get("recompute_num_layers") is not None


def _recomputed_layers(benchmark: Benchmark, model: Settings) -> int:
    """Return the number of layers recomputed as a whole. `block` selects the first ones of each (virtual) stage."""
    if model.get("recompute_granularity") != "full":
        return 0
    if not _by_block(model):
        return benchmark.model.layers
    share = benchmark.parallelism
    return min(int(model["recompute_num_layers"]) * share.pipeline * share.virtual_pipeline, benchmark.model.layers)


def _recomputed_together(benchmark: Benchmark, model: Settings) -> int:
    """Return how many consecutive layers are recomputed at once. `uniform` keeps only the input of the first one."""
    share = benchmark.parallelism
    if model.get("recompute_granularity") != "full" or model.get("recompute_method") != "uniform":
        return 1
    of_a_part = max(1, benchmark.model.layers // (share.pipeline * share.virtual_pipeline))
    return min(max(1, int(model.get("recompute_num_layers", 1))), of_a_part)
