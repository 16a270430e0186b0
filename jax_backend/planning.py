"""Plan a MaxText program: its settings, environment variables and XLA flags, and its refusals."""

from collections.abc import Iterator, Mapping, Sequence
from math import gcd, prod
from operator import attrgetter

from benchmarks.errors import RequestError
from benchmarks.request.framework import (
    DIMENSIONS_ARE_THE_MODELS,
    FILLED,
    OTHER_WORK,
    model_without_settings,
    program,
    unknown_values,
    whole,
    words_of,
)
from benchmarks.values import Benchmark, Hardware, Model, Parallelism, Scalar
from jax_backend import memory

ENVIRONMENT_NAME = "jax-maxtext"
SYNTHETIC = "synthetic"

# MaxText's defaults need a TPU and a bucket, run 150,001 steps, and write to the user's home.
EVERY_RUN: dict[str, Scalar] = {
    "run_name": "stepmark",
    "base_output_directory": "{phase_dir}/maxtext",
    "jax_cache_dir": "",
    "dataset_type": SYNTHETIC,
    "enable_checkpointing": False,
    "async_checkpointing": False,
    "enable_goodput_recording": False,
    "monitor_goodput": False,
    "enable_tensorboard": False,
    "log_period": 1,
    "skip_jax_distributed_system": True,  # the worker joins the processes itself, and checks the result
}

# MaxText's name of a dimension -> Stepmark's; used for models that MaxText does not know.
DIMENSIONS = {
    "base_emb_dim": "hidden_size",
    "base_num_query_heads": "attention_heads",
    "base_num_kv_heads": "query_groups",
    "head_dim": "head_dim",
    "base_mlp_dim": "ffn_hidden_size",
    "base_num_decoder_layers": "layers",
    "vocab_size": "vocabulary_size",
    "rope_max_timescale": "rope_theta",
    "normalization_layer_epsilon": "norm_epsilon",
    "logits_via_embedding": "tied_embeddings",
}
# The same for experts, latent attention and windows, by the attribute of the model that has them.
PART_DIMENSIONS: dict[str, dict[str, str]] = {
    "experts": {
        "num_experts": "count",
        "num_experts_per_tok": "active",
        "base_moe_mlp_dim": "ffn_hidden_size",
        "shared_experts": "shared",
        "first_num_dense_layers": "dense_layers",
    },
    "attention.latent": {
        "q_lora_rank": "query_rank",
        "kv_lora_rank": "key_value_rank",
        "qk_nope_head_dim": "unrotated_head_dim",
        "qk_rope_head_dim": "rotated_head_dim",
        "v_head_dim": "value_head_dim",
    },
    "attention.window": {"sliding_window_size": "tokens"},
}
MTP_MODULES = "mtp_num_layers"  # stated for every model that has any, because no model of MaxText has them by default
DIVIDED_LOGITS = "normalize_embedding_logits"  # divides a tied head's logits by sqrt(hidden size); MaxText's default
_NO_ADAPTERS = "nothing: a run creates its adapters and checks them before and after the training"
_UNKNOWN_AXES = ("autoregressive", "context_autoregressive", "context_usp_ulysses", "diloco", "sequence")
_CHANGING_THE_WORK = (
    "lora.lora_weight_qtype", "lora.lora_tile_size", "decoder_block", "mlp_activations", "attention_type",
    "attention_sink", "attention_bias", "use_qk_norm", "enable_rampup_batch_size", "use_dpo", "use_sft",
)  # fmt: skip
RESERVED: Mapping[str, str] = {
    "steps": "--steps",
    "model_name": "--model",
    "hardware": "--hardware",
    "dtype": "--dtype",
    "quantization": "--dtype",
    "per_device_batch_size": "--set=micro_batch_size=N",
    "max_target_length": "--set=sequence_length=N",
    "gradient_accumulation_steps": "--set=gradient_accumulation=N",
    "compiled_trainstep_file": "nothing: each run compiles the program that it measures",
    "metrics_file": "steps.jsonl in the run folder",
    "hf_access_token": "the environment variable HF_TOKEN; a token must not reach a file",
    "profiler": "--profile",
    "enable_dropout": "nothing: with dropout, the backends would do different work",
    **dict.fromkeys(
        (
            *DIMENSIONS,
            *(name for part in PART_DIMENSIONS.values() for name in part),
            MTP_MODULES,
            DIVIDED_LOGITS,
            "override_model_config",
            "global_parameter_scale",
        ),
        DIMENSIONS_ARE_THE_MODELS,
    ),
    "use_random_routing": "--set=routing",
    "base_config": "--set for single settings",
    "lora": "--task=lora with --set=lora.lora_rank=N and other lora.* settings",
    "lora.enable_lora": "--task",
    **dict.fromkeys(("lora.lora_restore_path", "lora_input_adapters_path", "hf_lora_adapter_path"), _NO_ADAPTERS),
    "eval_interval": "nothing: an evaluation would be part of a step's time",
    "trainable_parameters_mask": "--task",
    **dict.fromkeys(_CHANGING_THE_WORK, OTHER_WORK),
    **{
        f"{network}_{axis}_parallelism": "another axis, such as context, because no model in Stepmark uses this axis"
        for network in ("ici", "dcn")
        for axis in _UNKNOWN_AXES
    },
    **dict.fromkeys(EVERY_RUN, FILLED),
}

# gpu_multiprocess means one process per GPU. With `gpu`, MaxText 0.2.5 refuses Transformer Engine's attention if
# packing is on, which is the default, although synthetic data is never packed (configs/types.py:5329). Otherwise they
# differ only in how MaxText joins the processes (utils/max_utils.py:275), which the worker does instead.
MAXTEXT_HARDWARE = {"cpu": "cpu", "gpu": "gpu_multiprocess", "tpu": "tpu"}


def maxtext_argv(benchmark: Benchmark, changed: Mapping[str, Scalar] | None = None) -> list[str]:
    """Return MaxText's key=value arguments, each key once, as MaxText also accepts them without Stepmark.

    `changed` are the settings in which a phase differs from the benchmark.
    """
    share = benchmark.parallelism
    batch = benchmark.batch.micro_batch_size * share.data * share.fsdp / benchmark.gpus
    adapters: dict[str, Scalar] = {}
    experts: dict[str, Scalar] = {}
    if benchmark.model.experts is not None:
        from jax_backend import experts as of_experts

        experts = of_experts.settings(benchmark)
    if benchmark.lora is not None:
        from jax_backend import lora

        adapters = lora.adapter_settings(benchmark)
    settings: dict[str, Scalar] = {
        **EVERY_RUN,
        "hardware": MAXTEXT_HARDWARE[benchmark.hardware.kind],
        **model_settings(benchmark.model),
        "steps": benchmark.steps,
        "max_target_length": benchmark.batch.sequence_length,
        "per_device_batch_size": int(batch) if batch == int(batch) else batch,
        "gradient_accumulation_steps": benchmark.batch.gradient_accumulation,
        **experts,
        **benchmark.settings.knobs,
        **stated_layout(benchmark.settings.knobs),
        **{name: value for name, value in adapters.items() if name not in benchmark.settings.knobs},
        **(changed or {}),
    }
    if settings.get(
        "optimizer_memory_host_offload"
    ):  # without this setting, MaxText then does not report the gradient's norm
        settings["log_step_diagnostics"] = True
    return words_of(settings)


def model_settings(model: Model) -> dict[str, Scalar]:
    """Return the settings that select the model. An unknown model gets the dimensions of its file."""
    settings = dict(model.backend_settings["jax"])
    if settings.get("override_model_config"):
        settings |= {theirs: whole(getattr(model, ours)) for theirs, ours in DIMENSIONS.items()}
        settings |= {DIVIDED_LOGITS: False} if model.tied_embeddings else {}  # Llama models do not divide logits
        for place, names in PART_DIMENSIONS.items():
            part = attrgetter(place)(model)
            settings |= {theirs: getattr(part, ours) for theirs, ours in names.items()} if part else {}
    return settings | ({MTP_MODULES: model.mtp_modules} if model.mtp_modules else {})


# --- processes --------------------------------------------------------------------------------------


def tasks_per_node(benchmark: Benchmark) -> int:
    """Return the processes per node: one per GPU, or one for all virtual devices of a CPU."""
    return 1 if benchmark.hardware.kind == "cpu" else benchmark.gpus // benchmark.nodes


def worker_command(
    benchmark: Benchmark, options: Sequence[str] = (), changed: Mapping[str, Scalar] | None = None
) -> list[str]:
    """Return the command of the worker with its options and MaxText's settings."""
    return [
        *program("jax_backend/inside/worker.py"),
        "--events_dir={phase_dir}",
        f"--processes={benchmark.nodes * tasks_per_node(benchmark)}",
        f"--devices={benchmark.gpus}",
        f"--tasks_per_node={tasks_per_node(benchmark)}",
        *(f"--device_name={name}" for name in benchmark.hardware.device_names),
        *([f"--task={benchmark.trains}"] if benchmark.lora else []),
        *options,
        "--",
        *maxtext_argv(benchmark, changed),
    ]


def xla_flags_text(flags: Mapping[str, str]) -> str:
    """Return the value of XLA_FLAGS for these flags."""
    return " ".join(f"--{name}={value}" for name, value in flags.items())


def environment(
    benchmark: Benchmark, flags: Mapping[str, str] | None = None, variables: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables of a training phase; `flags` and `variables` are added to the benchmark's."""
    all_flags = {**benchmark.settings.xla_flags, **(flags or {})}
    hidden = {}
    if benchmark.hardware.kind == "cpu":
        all_flags["xla_force_host_platform_device_count"] = str(benchmark.gpus // benchmark.nodes)
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
    return {
        **hidden,
        "DECOUPLE_GCLOUD": "TRUE",
        "JAX_PLATFORMS": benchmark.hardware.platform,  # prevents a silent fallback from GPU to CPU
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        **(variables or {}),
        **benchmark.settings.environment,
        "XLA_FLAGS": xla_flags_text(all_flags),
    }


# --- refusals -----------------------------------------------------------------------------------

# The values that MaxText 0.2.5 allows for these settings.
_DTYPES = tuple(memory.DTYPE_BYTES)
CHOICES: Mapping[str, tuple[str, ...]] = {
    "attention": (
        "autoselected", "dot_product", "flash", "cudnn_flash_te", "cudnn_flash_jax", "paged", "vllm_rpa",
        "vllm_batched_rpa",  # layers/attention_op.py: apply_attention
    ),
    "remat_policy": (memory.CUSTOM, *memory.REMAT_POLICIES),
    "opt_type": memory.OPTIMIZERS,
    "weight_dtype": _DTYPES,
    "grad_dtype": _DTYPES,
    "mu_dtype": ("", *_DTYPES),
}  # fmt: skip


def needs_transformer_engine(benchmark: Benchmark) -> dict[str, str]:
    """Return setting -> alternative for each setting that needs Transformer Engine. quantization=fp8 does not."""
    found = {}
    if benchmark.settings.knobs.get("attention") == "cudnn_flash_te":
        found["attention=cudnn_flash_te"] = "--set=attention=cudnn_flash_jax"
    if str(benchmark.settings.knobs.get("quantization", "")).startswith("te_"):
        found[f"quantization={benchmark.settings.knobs['quantization']}"] = "--dtype=bf16"
    if benchmark.parallelism.context > 1:
        found["context parallelism"] = "--set=ici_context_parallelism=1 --set=dcn_context_parallelism=1"
    return found


def refusals(benchmark: Benchmark) -> Iterator[RequestError]:
    yield from model_without_settings(benchmark)
    shared, nodes = (
        between_nodes(benchmark.settings.knobs),
        1 if benchmark.hardware.kind == "cpu" else benchmark.nodes,
    )
    if shared != nodes:
        yield RequestError(
            f"the dcn_* settings share the work among {shared} nodes, but MaxText sees {nodes}",
            where="--set=dcn_*_parallelism",
            why=f"MaxText aborts unless the product of dcn_* is the number of nodes (one on a CPU); use {nodes}, "
            "and share the rest with ici_*",
        )
    if benchmark.data != SYNTHETIC:
        yield RequestError(
            f"MaxText runs use synthetic data, not {benchmark.data}",
            where="--data",
            next_command="--data=",
        )
    yield from unknown_values(benchmark, CHOICES)
    yield from _uneven_pipeline(benchmark)
    attention = str(benchmark.settings.knobs.get("attention", "autoselected"))
    if benchmark.hardware.kind == "cpu" and attention != "dot_product":
        yield RequestError(
            f"attention={attention} does not run on a CPU",
            where="--set=attention",
            why="flash attention kernels need an accelerator",
            next_command="--set=attention=dot_product",
        )


def _uneven_pipeline(benchmark: Benchmark) -> Iterator[RequestError]:
    """Refuse a pipeline for which an assertion of MaxText 0.2.5 would fail (configs/types.py:4587)."""
    share, knobs, size = benchmark.parallelism, benchmark.settings.knobs, benchmark.batch.micro_batch_size
    replicas, parts = share.data * share.fsdp, int(knobs.get("num_pipeline_microbatches", -1))
    least = share.pipeline * (2 if knobs.get("pipeline_delay_activation_forwarding") else 1)
    parts = least if parts == -1 else parts
    if share.pipeline > 1 and (parts < least or parts % share.pipeline or size * replicas % parts):
        step = least // gcd(least, replicas)
        yield RequestError(
            f"{share.pipeline} pipeline stages cannot run {size * replicas} sequences as {parts} micro-batches",
            where="--set=num_pipeline_microbatches and --set=micro_batch_size",
            why=f"MaxText needs {least} or more micro-batches, a multiple of the stages that divides the sequences "
            f"of a forward pass (micro_batch_size {size} x {replicas} replicas)",
            next_command=f"--set=micro_batch_size={-(-size // step) * step} --set=num_pipeline_microbatches={least}",
        )


# --- the mesh -----------------------------------------------------------------------------------
# ici_* axes are within a node (or one machine), dcn_* axes between nodes.

# axis of MaxText's mesh -> Stepmark's word for it. MaxText divides the batch and the dense weights along `expert`
# as along `fsdp`, so Stepmark's fsdp is the product of both.
AXIS_WORDS = {
    "data": "data",
    "fsdp": "fsdp",
    "fsdp_transpose": "fsdp",
    "context": "context",
    "tensor": "tensor",
    "tensor_sequence": "tensor",
    "pipeline": "pipeline",
    "expert": "expert",
}
AXES = tuple(f"{network}_{axis}_parallelism" for network in ("ici", "dcn") for axis in AXIS_WORDS)

# MaxText's defaults for these settings are -1, which means the device count. A benchmark states every size.
MAXTEXT_AUTOMATIC = ("ici_fsdp_parallelism", "dcn_data_parallelism")


def parallelism(knobs: dict[str, Scalar]) -> Parallelism:
    shares: dict[str, int] = {}
    for axis, word in AXIS_WORDS.items():
        shares[word] = shares.get(word, 1) * prod(_size(knobs, network, axis) for network in ("ici", "dcn"))
    return Parallelism(**{**shares, "fsdp": shares["fsdp"] * shares["expert"]})


def between_nodes(knobs: dict[str, Scalar]) -> int:
    """Return the number of parts along the dcn_* axes."""
    return prod(_size(knobs, "dcn", axis) for axis in AXIS_WORDS)


def _size(knobs: dict[str, Scalar], network: str, axis: str) -> int:
    name = f"{network}_{axis}_parallelism"
    size = int(knobs.get(name, 1))
    if size < 1:
        raise RequestError(
            f"{name}={size}, but each size of a layout must be 1 or more",
            where=f"--set={name}",
            next_command=f"--set={name}=1",
        )
    return size


def stated_layout(knobs: dict[str, Scalar]) -> dict[str, Scalar]:
    """Return the layout settings, with the sizes of MaxText's automatic axes stated."""
    return {**dict.fromkeys(MAXTEXT_AUTOMATIC, 1), **{k: v for k, v in knobs.items() if k in AXES}}


# The axes in the order in which a node is filled: the axis with the most communication first.
PLACED_INSIDE_OUT = ("tensor", "context", "expert", "fsdp", "data")
ALWAYS_STATED = ("fsdp", "data")  # stated even with size 1, to override the recipe's sizes


def layout_settings_for(share: Parallelism, gpus: int, hardware: Hardware) -> dict[str, Scalar] | None:
    """Return the settings of a layout; None if MaxText has no such layout, or needs more settings (a pipeline)."""
    if share.pipeline > 1 or share.virtual_pipeline > 1 or share.fsdp % share.expert:
        return None
    room = gpus if hardware.kind == "cpu" else min(gpus, hardware.devices_per_node)
    found: dict[str, Scalar] = {}
    for axis in PLACED_INSIDE_OUT:
        size: int = getattr(share, axis) // (share.expert if axis == "fsdp" else 1)
        inside = gcd(size, room)
        room //= inside
        if axis == "tensor" and inside < size:
            return None  # a tensor group communicates within every layer, too often for the network
        for network, part in (("ici", inside), ("dcn", size // inside)):
            if part > 1 or axis in ALWAYS_STATED:
                found[f"{network}_{axis}_parallelism"] = part
    return found
