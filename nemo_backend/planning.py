"""Plan the phases of a NeMo run: the worker's command, NeMo's settings and the environment variables."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from benchmarks.backend import EnvironmentSpec, LockFile
from benchmarks.configs import parse_yaml
from benchmarks.errors import RequestError
from benchmarks.request.framework import (
    DIMENSIONS_ARE_THE_MODELS,
    FILLED,
    model_without_settings,
    without_effect,
    words_of,
)
from benchmarks.runs import first_check, worker_events
from benchmarks.values import Benchmark, Phase, Plan, RunRecord, Scalar, Step
from nemo_backend import layout, lora, megatron, profiles

NONE = "none"
STRATEGY = layout.PLACES["nemo"]

# Turn off validation, checkpoints and loggers: a benchmark does not request them, and they could slow down steps.
EVERY_RUN: dict[str, Scalar] = {
    "trainer.limit_val_batches": 0,
    "trainer.num_sanity_val_steps": 0,
    "trainer.val_check_interval": NONE,
    "trainer.logger": False,
    "trainer.enable_checkpointing": False,
    "trainer.enable_model_summary": False,
    "trainer.use_distributed_sampler": False,
    "trainer.log_every_n_steps": 1,
    "trainer.default_root_dir": "{phase_dir}/nemo",
    "trainer.strategy.progress_interval": 1,
}

# Settings for a CPU, which lacks fused kernels, NCCL and CUDA's random state.
ON_A_CPU: dict[str, Scalar] = {
    "trainer.accelerator": "cpu",
    "trainer.strategy.process_group_backend": "gloo",
    "trainer.strategy.use_gloo_process_groups": True,
    "trainer.strategy.sequence_parallel": False,
    "trainer.strategy.ddp.check_for_nan_in_grad": False,
    "model.config.use_cpu_initialization": True,
    "model.config.gradient_accumulation_fusion": False,
    "model.config.bias_dropout_fusion": False,
    "model.config.masked_softmax_fusion": False,
    "model.config.apply_rope_fusion": False,
    "model.config.bias_activation_fusion": False,
    "model.config.persist_layer_norm": False,
    "model.config.cross_entropy_loss_fusion": False,
    "data.num_workers": 0,
}

# NeMo's settings for each precision. For fp8, the recipe adds the scaling.
_MIXED: dict[str, Scalar] = {
    "trainer.plugins.precision": "bf16-mixed",
    "trainer.plugins.params_dtype": "bfloat16",
    "trainer.plugins.pipeline_dtype": "bfloat16",
    "trainer.plugins.autocast_enabled": False,
    "trainer.strategy.pipeline_dtype": "bfloat16",
    "optim.config.bf16": True,
    "optim.config.params_dtype": "bfloat16",
}
PRECISIONS: dict[str, dict[str, Scalar]] = {
    "fp32": {
        "trainer.plugins.precision": "32",
        "trainer.strategy.pipeline_dtype": "float32",
        "optim.config.bf16": False,
        "optim.config.params_dtype": "float32",
    },
    "bf16": _MIXED,
    "fp8": {**_MIXED, "trainer.plugins.fp8": "hybrid"},
}

MODEL = "model.config"
MODEL_CLASS = "model.config_class"

RECOMPUTE = f"{MODEL}.recompute_granularity"
FP8_RECIPE = "trainer.plugins.fp8_recipe"
CONTEXT = f"{STRATEGY}.{layout.SIZES['context']}"

RESERVED: Mapping[str, str] = {
    **megatron.reserved("nemo"),
    **dict.fromkeys((MODEL_CLASS, *(f"{MODEL}.{name}" for name in megatron.DIMENSIONS)), DIMENSIONS_ARE_THE_MODELS),
    **dict.fromkeys({name for settings in PRECISIONS.values() for name in settings}, "--dtype"),
    **dict.fromkeys(EVERY_RUN, FILLED),
}


# --- settings ---------------------------------------------------------------------------------


@cache
def settings() -> dict[str, str]:
    """Return every setting of the pinned NeMo with its type, from the file that list_settings.py makes."""
    types: dict[str, str] = parse_yaml(Path(__file__).with_name("nemo_settings.yml"))
    return types


def nemo_settings(benchmark: Benchmark) -> dict[str, Scalar]:
    """Return every setting that the run passes to NeMo."""
    knobs = benchmark.settings.knobs
    stated: dict[str, Scalar] = {
        **EVERY_RUN,
        "trainer.accelerator": "gpu",
        "trainer.max_steps": benchmark.steps,
        "trainer.devices": benchmark.gpus // benchmark.nodes,
        "trainer.num_nodes": benchmark.nodes,
        **PRECISIONS[benchmark.dtype],
        MODEL_CLASS: benchmark.model.backend_settings["nemo"][MODEL_CLASS],
        **megatron.dimensions(benchmark.model, MODEL),
        "model.config.seq_length": benchmark.batch.sequence_length,
        "data.seq_length": benchmark.batch.sequence_length,
        "data.micro_batch_size": benchmark.batch.micro_batch_size,
        "data.global_batch_size": benchmark.batch.global_batch_size,
        **knobs,
        **(ON_A_CPU if benchmark.hardware.kind == "cpu" else {}),
        **{name: knobs[name] for name in benchmark.settings.overrides if name in knobs},
    }
    if benchmark.lora:
        stated["peft.target_modules"] = ",".join(lora.target_names(knobs))
    if benchmark.parallelism.virtual_pipeline == 1:
        # Megatron would interleave the schedule if this were 1.
        stated[f"{STRATEGY}.{layout.SIZES['virtual_pipeline']}"] = NONE
    elif benchmark.hardware.kind == "cpu":
        # Megatron-core 0.15.3 can free an output while gloo is still sending it, so that the next stage trains wrong.
        stated["model.config.deallocate_pipeline_outputs"] = False
    return stated


# --- the environment ------------------------------------------------------------------------

ENVIRONMENT_NAME = "nemo-megatron"

# This image has NeMo 2.5.0, Megatron-core 0.14.0, Transformer Engine 2.7.0, PyTorch 2.8 and CUDA 12.9. NVIDIA's LoRA
# recipe uses it from v25.10 to v25.12 (dgxc-benchmarking, llama3/finetune/metadata.yaml). 25.11 has NeMo 2.6.0,
# Megatron-core 0.15.0 and Transformer Engine 2.9; 26.02 has 2.7.0, 0.16.0 and 2.12; 26.04 and later lack NeMo 2.
# Source of the versions: Megatron-Bridge v0.6.0, docs/releases/software-versions.md, read on 2026-11-23. The image is
# not tested on a GPU; tests/nemo_backend/test_every_plan.py builds the objects of every recipe with NeMo 2.5.
IMAGE = "nvcr.io/nvidia/nemo:25.09"

CPU_LOCK = LockFile(
    path=Path(__file__).with_name("requirements-cpu.lock"),
    python_minimum=(3, 11),
    python_maximum=(3, 11),
    size_gb=2.1,
    offered="torch==2.13.0+cpu",
)
CUDA_LOCK = LockFile(
    path=Path(__file__).with_name("requirements-cuda.lock"),
    python_minimum=(3, 11),
    python_maximum=(3, 12),
    size_gb=6.2,
    cuda=(13, 0),
)
# Platform -> the lock files, the preferred one first. PyPI's torch is the CUDA build, which also runs on a CPU.
LOCKS = {"cpu": (CPU_LOCK, CUDA_LOCK), "cuda": (CUDA_LOCK,)}


def environment(engine: str, platform: str) -> EnvironmentSpec:  # noqa: ARG001
    """Return the lock files, the image and the import check of NeMo's environment."""
    return EnvironmentSpec(
        name=ENVIRONMENT_NAME,
        locks=LOCKS.get(platform, ()),
        # The check imports a recipe, because nemo.collections.llm itself turns failed imports into a warning.
        import_check="nemo.collections.llm.recipes.llama3_70b",
        # Megatron-core compiles CUDA code on import if torch has CUDA and nvcc is installed. Without a GPU, torch
        # needs an explicit architecture for that. (The worker prevents the compilation.)
        image=IMAGE,
        import_variables={"TORCH_CUDA_ARCH_LIST": "9.0"},
    )


# --- the plan ---------------------------------------------------------------------------------


def worker_command(benchmark: Benchmark) -> list[str]:
    own = [f"--vocabulary_size={benchmark.model.vocabulary_size}"]
    return profiles.worker_command(benchmark, "worker.py", own, words_of(nemo_settings(benchmark)))


def variables(benchmark: Benchmark) -> dict[str, str]:
    return {
        **({"CUDA_VISIBLE_DEVICES": ""} if benchmark.hardware.kind == "cpu" else {}),  # a CUDA build would use a GPU
        "HF_HUB_OFFLINE": "1",
        "NEMO_HOME": "{phase_dir}/nemo",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **benchmark.settings.environment,
    }


def plan(benchmark: Benchmark) -> Plan:
    needs = needs_transformer_engine(benchmark)
    return profiles.plan(benchmark, ENVIRONMENT_NAME, worker_command(benchmark), variables(benchmark), needs)


def check_phase(benchmark: Benchmark) -> Phase:
    """Return the phase in which the worker, with the run's settings, checks one node instead of training."""
    (trains,) = plan(benchmark).phases
    return first_check.check_phase(trains, first_check.with_option(worker_command(benchmark)))


def read_phase(benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:  # noqa: ARG001
    return worker_events.read_phase(phase_dir, attempt)


def follow(benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:  # noqa: ARG001
    return worker_events.follow(phase_dir, attempt)


# --- what NeMo cannot do ------------------------------------------------------------------------


def refusals(benchmark: Benchmark) -> list[RequestError]:
    overlaps = any(name.startswith("comm_overlap.") for name in benchmark.settings.knobs)  # by NeMo's callback
    return [
        *model_without_settings(benchmark, MODEL_CLASS),
        *_settings(benchmark),
        *lora.refusals(benchmark),
        *(megatron.cpu_refusals(benchmark, RECOMPUTE, CONTEXT) if benchmark.hardware.kind == "cpu" else ()),
        *megatron.schedule_refusals(benchmark, STRATEGY),
        *megatron.pair_refusals(benchmark, STRATEGY, "comm_overlap" if overlaps else MODEL, overlaps=overlaps),
        *megatron.data_refusals(benchmark),
    ]


def _settings(benchmark: Benchmark) -> Iterator[RequestError]:
    """Refuse settings that belong to the other engine, have no effect, or do not work on this GPU."""
    why = "if it is a field of Megatron-Bridge's configuration, pass --engine=bridge"
    yield from megatron.unknown_settings(benchmark, settings(), why, "bridge")
    for name in benchmark.settings.overrides:
        if name.startswith("trainer.plugins.fp8") and benchmark.dtype != "fp8":
            yield without_effect(name, benchmark.dtype, "--dtype=fp8")
    if FP8_RECIPE in benchmark.settings.knobs:
        yield from megatron.fp8_scaling_refusals(benchmark, FP8_RECIPE)


# Setting -> its default for Llama in NeMo 2.7.3. If a setting is true, Megatron 0.15.3 fails an assertion or imports
# a kernel of Transformer Engine or Apex. With tp_comm_overlap, it trains, but without the requested overlap.
FALSE_WITHOUT_TRANSFORMER_ENGINE: dict[str, bool] = {
    "model.config.persist_layer_norm": True,
    "model.config.apply_rope_fusion": True,
    "model.config.masked_softmax_fusion": True,
    "model.config.gradient_accumulation_fusion": False,
    "trainer.strategy.sequence_parallel": False,
    "comm_overlap.tp_comm_overlap": False,
}


def needs_transformer_engine(benchmark: Benchmark) -> dict[str, str]:
    """Return each feature that needs Transformer Engine -> the setting that avoids it."""
    found = {"fp8": "--dtype=bf16"} if benchmark.dtype == "fp8" else {}
    if benchmark.parallelism.context > 1:
        found["context parallelism"] = f"--set={CONTEXT}=1"
    for name, usual in FALSE_WITHOUT_TRANSFORMER_ENGINE.items():
        if benchmark.settings.knobs.get(name, usual):
            found[f"{name}=true"] = f"--set={name}=false"
    return found
