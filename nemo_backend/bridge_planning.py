"""A Benchmark -> the command of a Megatron-Bridge run, in its container; and what that engine must refuse. Pure.

The program is Megatron-Bridge's own scripts/training/run_recipe.py: it takes a recipe by name, then `key=value`
overrides of any field of its configuration. Everything Stepmark has resolved is stated as an override, so the run
is the benchmark and not the recipe's defaults; what no override can say (the buffers of the tensor parallel
overlap, fused kernels) comes with the recipe that the knob `recipe` names.

Two kinds of recipe: a benchmark recipe is tuned for the hardware and precision in its name and brings mock data of
its own; a library recipe (MODEL_pretrain_config) has neither. Facts are Megatron-Bridge 0.6.2's.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.assets import hub_cache
from benchmarks.assets.assets import Repository
from benchmarks.assets.datasets import read_dataset
from benchmarks.backend import EnvironmentSpec
from benchmarks.configs import parse_yaml
from benchmarks.request.framework import DIMENSIONS_ARE_THE_MODELS, FILLED, OTHER_WORK, program, text_of
from benchmarks.values import Benchmark, Phase, Plan, Scalar
from nemo_backend import profiles
from nemo_backend.megatron import DIMENSIONS, dimensions

VERSION = "0.6.2"  # of the sources that bridge_settings.yml lists
# Megatron-Bridge 0.6.0 of 2026-08-19 is that of "NeMo Framework 26.08" (its release notes), and its Llama recipes and
# settings are the wheel's; 26.06 holds 0.5.0, 26.04 0.4.0 (v0.6.0, docs/releases/software-versions.md; 2026-11-23).
CONTAINER = "nvcr.io/nvidia/nemo:26.08"
CUDA = (13, 1)  # of 26.04, by the same document; that of 26.08 is not in it, and a driver is for all of CUDA 13
SCRIPT = "/opt/Megatron-Bridge/scripts/training/run_recipe.py"

PLACE = "model"
TENSOR = "model.tensor_model_parallel_size"
PIPELINE = "model.pipeline_model_parallel_size"
CONTEXT = "model.context_parallel_size"
VIRTUAL = "model.virtual_pipeline_model_parallel_size"
SEQUENCE_PARALLEL = "model.sequence_parallel"
FP8 = "mixed_precision.fp8"
FP8_RECIPE = "mixed_precision.fp8_recipe"
PRETRAINED = "checkpoint.pretrained_checkpoint"


MADE_UP_DATA = ("mock", "synthetic")
TASKS = {"pretrain": ("pretrain", "pretrain"), "lora": ("lora", "peft")}  # task -> --mode, and its word in names

# Megatron-Bridge's defaults save checkpoints, evaluate, and log every tenth step.
EVERY_RUN: Mapping[str, str] = {
    "logger.log_interval": "1",
    "logger.log_throughput": "true",
    "logger.tensorboard_dir": "null",
    "logger.skip_train_metrics_log": "false",
    "checkpoint.save": "null",
    "checkpoint.load": "null",
    "validation.eval_iters": "0",
    "tokenizer.use_tokenizer_vocab_size": "false",  # a tokenizer must not resize the model
}

# Megatron's word for how fp8 numbers are scaled -> its word in names of recipes, and its mixed precision.
FP8_SCALINGS: Mapping[str, tuple[str, str]] = {
    "tensorwise": ("fp8cs", "bf16_with_fp8_current_scaling_mixed"),
    "delayed": ("fp8ds", "bf16_with_fp8_delayed_scaling_mixed"),
    "blockwise": ("fp8sc", "bf16_with_fp8_subchannel_scaling_mixed"),
    "mxfp8": ("fp8mx", "bf16_with_mxfp8_mixed"),
}

_OF_THE_MODEL = ("model.hf_model_id", "model.hf_model_revision", "tokenizer.vocab_size")
_OF_THE_PRECISION = (
    "mixed_precision.bf16", "mixed_precision.fp16", "mixed_precision.fp32", "mixed_precision.params_dtype",
    "mixed_precision.fp4", "mixed_precision.fp4_param", "model.params_dtype", "model.bf16", "model.fp16",
    "model.fp4", "model.fp8",
)  # fmt: skip
_OTHER_PROFILER = (
    "profiling.use_pytorch_profiler", "profiling.pytorch_profiler_collect_callstack",
    "profiling.pytorch_profiler_collect_chakra", "profiling.pytorch_profiler_collect_shapes",
)  # fmt: skip
_IN_A_STEP = (
    "profiling.record_memory_history", "profiling.memory_snapshot_path", "checkpoint.save_interval",
    "checkpoint.non_persistent_save_interval", "train.eval_iters", "train.eval_interval", "validation.eval_interval",
)  # fmt: skip
_CHANGING_THE_WORK = (
    "train.rampup_batch_size", "train.step_batch_size_schedule", "train.decrease_batch_size_if_needed",
    "train.iterations_to_skip", "train.skip_train", "validation.skip_train", "model.num_moe_experts",
    "model.mtp_num_layers", "model.mtp_enabled",
)  # fmt: skip
_OTHER_AXES = (
    "model.expert_model_parallel_size", "model.expert_tensor_parallel_size", "dist.eval_context_parallel_size",
)  # fmt: skip
RESERVED: Mapping[str, str] = {
    **dict.fromkeys(("train.train_iters", "train.train_samples", "train.num_epochs"), "--steps"),
    **dict.fromkeys(("scheduler.max_steps", "scheduler.lr_decay_iters", "scheduler.lr_decay_samples"), "--steps"),
    **dict.fromkeys(("train.exit_interval", "train.exit_duration_in_mins"), "--steps"),
    "train.global_batch_size": "--set=global_batch_size=N",
    "train.micro_batch_size": "--set=micro_batch_size=N",
    **dict.fromkeys(("model.seq_length", "dataset.seq_length", "dataset.sequence_length"), "--set=sequence_length=N"),
    **dict.fromkeys((*(f"{PLACE}.{name}" for name in DIMENSIONS), *_OF_THE_MODEL), DIMENSIONS_ARE_THE_MODELS),
    **dict.fromkeys(_OF_THE_PRECISION, "--dtype"),
    "model.fp8_recipe": f"--set={FP8_RECIPE}=NAME",
    "mixed_precision": f"--dtype and --set={FP8_RECIPE}=NAME",
    **dict.fromkeys(
        ("dataset.blend", "dataset.blend_per_split", "dataset.data_path", "dataset.dataset_root"), "--data"
    ),
    "dataset.path_to_cache": "nothing: a run's index is made in its own folder",
    "profiling.use_nsys_profiler": "--profile=nsys",
    "profiling.profile_step_start": "--profile_start_step=N",
    "profiling.profile_step_end": "--profile_stop_step=N",
    "profiling.profile_ranks": "--profile_ranks=LIST",
    **dict.fromkeys(_OTHER_PROFILER, "--profile=nsys: two profilers cannot run at once"),
    **dict.fromkeys(_IN_A_STEP, "nothing: it would fall into a step's time"),
    **dict.fromkeys(_CHANGING_THE_WORK, OTHER_WORK),
    **dict.fromkeys(_OTHER_AXES, "another axis: no dense model is shared out along this one"),
    "tokenizer.tokenizer_type": "nothing: no text is read while a step is timed",
    "logger.comet_api_key": "the environment variable COMET_API_KEY; a key must not reach a file",
    **dict.fromkeys(EVERY_RUN, FILLED),
}


# --- what the sources list ----------------------------------------------------------------------


@cache
def _listed() -> dict[str, Any]:
    listed: dict[str, Any] = parse_yaml(Path(__file__).with_name("bridge_settings.yml"))
    return listed


def settings() -> dict[str, str]:
    """Every override of Megatron-Bridge that --set may name, with its type."""
    types: dict[str, str] = _listed()["settings"]
    return types


def benchmark_recipes() -> frozenset[str]:
    return frozenset(_listed()["benchmark_recipes"])


def library_recipes() -> frozenset[str]:
    return frozenset(_listed()["library_recipes"])


# What a recipe reads of a model, however small: its configuration first; adapters' mock data take the tokenizer too.
FROM_THE_HUB = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
)  # fmt: skip


def hub_repository(model: str) -> Repository | None:
    """The gated repository that Megatron-Bridge's recipes of a model begin with."""
    name = _listed()["configurations"].get(model)
    if name is None:
        return None
    return Repository(kind="models", name=name, revision="main", files=list(FROM_THE_HUB), gated=True)


def environment() -> EnvironmentSpec:
    return EnvironmentSpec(name=CONTAINER, locks=(), import_check="megatron.bridge", image=CONTAINER, image_cuda=CUDA)


# --- the command --------------------------------------------------------------------------------


def plan(benchmark: Benchmark) -> Plan:
    cache = hub_cache.home(benchmark.site)
    perf = Phase(
        name="perf",
        command=profiles.profiled(benchmark, command(benchmark)),
        # The model's configuration is read from the site's cache: thousands of ranks ask no hub, and need no token.
        environment={
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            **({"HF_HOME": str(cache)} if cache else {}),
            **benchmark.environment,
            **profiles.traced(benchmark),
        },
        nodes=benchmark.nodes,
        tasks_per_node=benchmark.gpus // benchmark.nodes,
        devices_per_task=1,
        writes_steps=True,
        programs=profiles.programs(benchmark),
        mounts=[f"{cache}:{cache}"] if cache else [],
    )
    return Plan(backend=benchmark.backend, environment_name=benchmark.image or CONTAINER, phases=[perf])


def command(benchmark: Benchmark) -> list[str]:
    """What a user of Megatron-Bridge would type in its container, once a GPU."""
    mode, _ = TASKS[benchmark.task]
    kind = "megatron-indexed" if benchmark.task == "pretrain" else "local-jsonl"
    preset = "mock" if benchmark.data in MADE_UP_DATA else kind
    dataset = [] if is_benchmark_recipe(benchmark) else [f"--dataset={preset}"]
    return [
        "{python}",
        SCRIPT,
        f"--recipe={benchmark.knobs['recipe']}",
        f"--mode={mode}",
        *dataset,
        *(f"{key}={value}" for key, value in overrides(benchmark).items()),
    ]


def check_command(benchmark: Benchmark) -> list[str]:
    """What looks at one node before the others are used, with the run's own command behind it."""
    _, *run = command(benchmark)
    return [
        *program("nemo_backend/inside/bridge_check.py"),
        "--events_dir={phase_dir}",
        f"--processes={benchmark.gpus}",
        f"--tasks_per_node={benchmark.gpus // benchmark.nodes}",
        *(f"--device_name={name}" for name in benchmark.hardware.device_names),
        "--",
        *run,
    ]


def is_benchmark_recipe(benchmark: Benchmark) -> bool:
    return benchmark.knobs.get("recipe") in benchmark_recipes()


def overrides(benchmark: Benchmark) -> dict[str, str]:
    """Every field of the run's configuration that Stepmark has resolved, each once, as Hydra reads it."""
    return {
        **EVERY_RUN,
        **{key: text_of(value) for key, value in dimensions(benchmark.model, PLACE).items()},
        "train.train_iters": str(benchmark.steps),
        "scheduler.lr_decay_iters": str(benchmark.steps),
        "train.global_batch_size": str(benchmark.global_batch_size),
        "train.micro_batch_size": str(benchmark.micro_batch_size),
        "model.seq_length": str(benchmark.sequence_length),
        "dataset.seq_length": str(benchmark.sequence_length),
        **_data(benchmark),
        **_precision(benchmark),
        **{key: hydra_text(key, value) for key, value in _passed_on(benchmark).items()},
        **_layout(benchmark),
        **profiles.bridge_settings(benchmark.profiling),
    }


def _layout(benchmark: Benchmark) -> dict[str, str]:
    share = benchmark.parallelism
    return {
        TENSOR: str(share.tensor),
        PIPELINE: str(share.pipeline),
        CONTEXT: str(share.context),
        VIRTUAL: str(share.virtual_pipeline) if share.virtual_pipeline > 1 else "null",
        SEQUENCE_PARALLEL: text_of(benchmark.knobs.get(SEQUENCE_PARALLEL, share.tensor > 1)),
    }


def _precision(benchmark: Benchmark) -> dict[str, str]:
    """A benchmark recipe holds its precision as fields, a library recipe takes the name of a whole."""
    if is_benchmark_recipe(benchmark):
        return {"mixed_precision.bf16": "true", **({FP8: "null"} if benchmark.dtype == "bf16" else {})}
    if benchmark.dtype == "bf16":
        return {"mixed_precision": "bf16_mixed"}
    _, name = FP8_SCALINGS[str(benchmark.knobs[FP8_RECIPE])]
    return {"mixed_precision": name}


def _passed_on(benchmark: Benchmark) -> dict[str, Scalar]:
    """The knobs that are overrides as they stand."""
    named_whole = () if is_benchmark_recipe(benchmark) else (FP8, FP8_RECIPE)
    return {key: value for key, value in benchmark.knobs.items() if key not in ("recipe", *named_whole)}


def _data(benchmark: Benchmark) -> dict[str, str]:
    """Mock data, or the folder of --data: indexed tokens to pretrain on, questions and answers for LoRA."""
    if benchmark.task != "pretrain":
        if benchmark.data in MADE_UP_DATA:
            return {}
        return {"dataset.dataset_root": quoted(benchmark.data)}
    tokens = {
        "tokenizer.tokenizer_type": "NullTokenizer",
        "tokenizer.vocab_size": str(benchmark.model.vocabulary_size),
    }
    if benchmark.data in MADE_UP_DATA:
        return {**tokens, "dataset.blend": "null", "dataset.data_path": "null"}
    folder = Path(benchmark.data)
    paths = ",".join(quoted(str(folder / prefix)) for prefix in read_dataset(folder).prefixes)
    return {**tokens, "dataset.data_path": f"[{paths}]", "dataset.path_to_cache": quoted("{phase_dir}/index")}


# --- Hydra's grammar ----------------------------------------------------------------------------

# A text of these alone is one word to Hydra's grammar.
_PLAIN = re.compile(r"[A-Za-z0-9_./:+*@%$?|-]+")


def hydra_text(key: str, value: Scalar) -> str:
    """A list may be typed as `a,b`; what begins with a bracket is Hydra's own; other text is quoted if it must be."""
    if not isinstance(value, str) or value.startswith(("[", "{")):
        return text_of(value)
    if settings().get(key) == "list":
        return f"[{value}]"
    return value if _PLAIN.fullmatch(value) else quoted(value)


def quoted(text: str) -> str:
    """Hydra takes a backslash for itself, but before a quote."""
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
    return f"'{escaped}'"
