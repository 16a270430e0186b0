"""A Benchmark -> the command of a Megatron-Bridge run, and the reasons to refuse it. Pure.

The worker loads a Megatron-Bridge recipe by name and applies `key=value` overrides to any field of its configuration,
as NVIDIA's scripts/training/run_recipe.py does. Stepmark passes every value it has resolved as an override, so that
the recipe's defaults cannot change the benchmark. Only the recipe, named by the setting `recipe`, can choose the
buffers of the tensor parallel overlap and the fused kernels, because no override reaches them.

There are two kinds of recipe: a benchmark recipe is tuned for the hardware and precision in its name and brings mock
data; a library recipe (MODEL_pretrain_config) has neither. Facts are for Megatron-Bridge 0.6.2.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.assets import Repository, hub_home
from benchmarks.backend import EnvironmentSpec, LockFile
from benchmarks.configs import parse_yaml
from benchmarks.errors import RequestError, closest, nearest
from benchmarks.request.framework import DIMENSIONS_ARE_THE_MODELS, FILLED, text_of
from benchmarks.runs import first_check, worker_events
from benchmarks.values import QUANTIZED, Benchmark, EachTime, Phase, Plan, RunRecord, Scalar, Step
from nemo_backend import experts, layout, lora, megatron, profiles

VERSION = "0.6.2"  # of Megatron-Bridge in bridge_settings.yml
# The image has Megatron-Bridge 0.6.0 of 2026-08-19 (its release notes: "NeMo Framework 26.08"), with the same Llama
# recipes and settings as 0.6.2. 26.06 has 0.5.0 and 26.04 has 0.4.0 (v0.6.0, docs/releases/software-versions.md;
# read on 2026-11-23).
CONTAINER = "nvcr.io/nvidia/nemo:26.08"
ENVIRONMENT_NAME = "megatron-bridge"
# PyPI's torch is the CUDA build, which also runs on a CPU. This Megatron-Bridge supports only Python 3.12.
LOCK = LockFile(
    path=Path(__file__).with_name("requirements-bridge.lock"),
    python_minimum=(3, 12),
    python_maximum=(3, 12),
    size_gb=5.2,
    cuda=(13, 0),
    complete=False,
)

PLACE = layout.PLACES["bridge"]
SEQUENCE_PARALLEL = f"{PLACE}.sequence_parallel"
FP8 = "mixed_precision.fp8"
FP8_RECIPE = "mixed_precision.fp8_recipe"
PRETRAINED = "checkpoint.pretrained_checkpoint"

TASKS = {"pretrain": "pretrain", "lora": "peft"}  # task -> its word in recipe names

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

# Settings for an environment without Transformer Engine; a CPU also needs those of ON_A_CPU.
WITHOUT_TRANSFORMER_ENGINE: Mapping[str, str] = {
    "model.transformer_impl": "local",
    "model.apply_rope_fusion": "false",
    "model.cross_entropy_fusion_impl": "native",
    "model.cross_entropy_loss_fusion": "false",  # Megatron's own fused loss rounds its gradient to bf16, also in fp32
    "model.gradient_accumulation_fusion": "false",
    "model.masked_softmax_fusion": "false",
    "model.persist_layer_norm": "false",
}
ON_A_CPU: Mapping[str, str] = {
    "dist.distributed_backend": "gloo",
    "dist.disable_jit_fuser": "true",
    "dataset.num_workers": "0",
}
RECOMPUTE, CONTEXT = "model.recompute_granularity", f"{PLACE}.{layout.SIZES['context']}"

# Megatron's name of an fp8 scaling -> its word in recipe names, and the mixed precision that uses it.
FP8_SCALINGS: Mapping[str, tuple[str, str]] = {
    "tensorwise": ("fp8cs", "bf16_with_fp8_current_scaling_mixed"),
    "delayed": ("fp8ds", "bf16_with_fp8_delayed_scaling_mixed"),
    "blockwise": ("fp8sc", "bf16_with_fp8_subchannel_scaling_mixed"),
    "mxfp8": ("fp8mx", "bf16_with_mxfp8_mixed"),
    "nvfp4": ("nvfp4", "bf16_with_nvfp4_mixed"),
}
# A benchmark recipe has the fields of its precision; these state which of them is on.
PRECISION_FIELDS: Mapping[str, Mapping[str, str]] = {
    "bf16": {FP8: "null"},
    "fp8": {},
    "mxfp8": {FP8: "e4m3", FP8_RECIPE: "mxfp8"},
    "nvfp4": {FP8: "null", "mixed_precision.fp4": "e2m1", "mixed_precision.fp4_recipe": "nvfp4"},
}
PRECISION_IN_NAME = re.compile(r"_(bf16|fp8[a-z]{2}|nvfp4)_")

RESERVED: Mapping[str, str] = {
    **megatron.reserved("bridge"),
    **dict.fromkeys((f"{PLACE}.{name}" for name in megatron.DIMENSIONS), DIMENSIONS_ARE_THE_MODELS),
    **dict.fromkeys((f"{PLACE}.{name}" for name in experts.ARCHITECTURE), DIMENSIONS_ARE_THE_MODELS),
    **dict.fromkeys(EVERY_RUN, FILLED),
}


# --- settings and recipes -----------------------------------------------------------------------


@cache
def _listed() -> dict[str, Any]:
    listed: dict[str, Any] = parse_yaml(Path(__file__).with_name("bridge_settings.yml"))
    return listed


def settings() -> dict[str, str]:
    """Return every setting of Megatron-Bridge that --set accepts, with its type."""
    types: dict[str, str] = _listed()["settings"]
    return types


def recipes() -> frozenset[str]:
    return frozenset((*_listed()["benchmark_recipes"], *_listed()["library_recipes"]))


def is_benchmark_recipe(benchmark: Benchmark) -> bool:
    return benchmark.settings.knobs.get("recipe") in frozenset(_listed()["benchmark_recipes"])


# The files of a model that a recipe reads: its configuration and, for the mock data of adapters, its tokenizer.
FROM_THE_HUB = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
)  # fmt: skip
CODE = {"moonshotai/Kimi-K2-Instruct": ("configuration_deepseek.py",)}  # Python code that a configuration names


def hub_repository(model: str) -> Repository | None:
    """Return the repository from which Megatron-Bridge's recipes load a model's configuration and tokenizer."""
    name = _listed()["configurations"].get(model)
    if name is None:
        return None
    gated = name.startswith("meta-llama/")
    files = FROM_THE_HUB if gated else ["config.json", *CODE.get(name, ())]  # the open models only pretrain
    return Repository(kind="models", name=name, revision="main", files=list(files), gated=gated)


def environment(engine: str, platform: str) -> EnvironmentSpec:  # noqa: ARG001
    return EnvironmentSpec(
        name=ENVIRONMENT_NAME,
        locks=(LOCK,) if platform in ("cpu", "cuda") else (),
        import_check="megatron.core",  # importing Bridge needs Transformer Engine or the worker's stand-in
        image=CONTAINER,
        import_variables={"TORCH_CUDA_ARCH_LIST": "9.0"},  # see planning.py
    )


def lacks_transformer_engine(benchmark: Benchmark) -> bool:
    """Return whether the run trains without Transformer Engine, which virtual environments do not have."""
    return megatron.lacks_transformer_engine(benchmark, needs_transformer_engine(benchmark))


def needs_transformer_engine(benchmark: Benchmark) -> dict[str, str]:
    """Return each feature that needs Transformer Engine -> the flag that avoids it."""
    knobs = benchmark.settings.knobs
    wanted = {
        "a benchmark recipe": (is_benchmark_recipe(benchmark), "--runtime=container"),
        benchmark.dtype: (benchmark.dtype in QUANTIZED, "--dtype=bf16"),
        "context parallelism": (benchmark.parallelism.context > 1, f"--set={CONTEXT}=1"),
        "sequence parallelism": (knobs.get(SEQUENCE_PARALLEL, False), f"--set={SEQUENCE_PARALLEL}=false"),
    }
    return {name: flag for name, (needed, flag) in wanted.items() if needed}


# --- the plan -----------------------------------------------------------------------------------


def variables(benchmark: Benchmark) -> dict[str, str]:
    cache = hub_home(benchmark.site)
    # All ranks read the model's configuration from the site's cache, so they need neither the hub nor a token.
    # On a CPU, these prevent that a CUDA build uses a GPU and that torch.compile compiles functions on import.
    on_a_cpu = {"CUDA_VISIBLE_DEVICES": "", "TORCHDYNAMO_DISABLE": "1"}
    return {
        **(on_a_cpu if benchmark.hardware.kind == "cpu" else {}),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        **({"HF_HOME": str(cache)} if cache else {}),
        **benchmark.settings.environment,
    }


def plan(benchmark: Benchmark) -> Plan:
    cache = hub_home(benchmark.site)
    needs, mounts = needs_transformer_engine(benchmark), [f"{cache}:{cache}"] if cache else []
    weights = str(benchmark.settings.knobs.get(PRETRAINED, ""))
    mounts += [f"{weights}:{weights}:ro"] if weights.startswith("/") else []
    return profiles.plan(benchmark, ENVIRONMENT_NAME, command(benchmark), variables(benchmark), needs, mounts)


def command(benchmark: Benchmark) -> list[str]:
    """Return the command of the worker, which is started once per device."""
    own = [
        f"--recipe={benchmark.settings.knobs['recipe']}",
        *([] if is_benchmark_recipe(benchmark) else ["--library"]),
        *_dataset(benchmark),
        *([] if hub_repository(benchmark.model.name) else ["--stated_model"]),
    ]
    return profiles.worker_command(benchmark, "bridge_worker.py", own, words(overrides(benchmark)))


def _dataset(benchmark: Benchmark) -> list[str]:
    """Return the option that replaces the recipe's dataset, if the run needs another. run_recipe.py has the same."""
    if benchmark.data in megatron.MADE_UP_DATA:
        own = is_benchmark_recipe(benchmark) and benchmark.task == "pretrain"
        return [] if own else ["--dataset=mock"]
    kind = "megatron-indexed" if benchmark.task == "pretrain" else "local-jsonl"
    return [] if is_benchmark_recipe(benchmark) else [f"--dataset={kind}"]


def check_phase(benchmark: Benchmark) -> Phase:
    """Return the phase in which the worker only builds the run's configuration, with the run's settings."""
    (trains,) = plan(benchmark).phases
    return first_check.check_phase(trains, first_check.with_option(command(benchmark)))


# --- what the run recorded ----------------------------------------------------------------------


def follow(benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
    """Return a function that reads new steps of the last rank, because only the last pipeline stage has a loss."""
    return worker_events.follow(phase_dir, attempt, benchmark.gpus - 1)


def read_phase(benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:
    """Read the worker's events, and Bridge's own step times from the log of the last rank, which prints them."""
    from nemo_backend.logs import MEGATRON, read_log

    record = worker_events.read_phase(phase_dir, attempt)
    printed, _ = read_log(phase_dir / f"rank-{benchmark.gpus - 1}.log", MEGATRON, attempt)
    of_last = follow(benchmark, phase_dir, attempt)()
    return msgspec.structs.replace(record, steps=EachTime(lambda: _completed(record.steps, of_last, printed)))


def _completed(clocked: Iterable[Step], of_last: list[Step], printed: list[Step]) -> Iterator[Step]:
    """Yield the worker's steps. Those of rank 0 get the last rank's loss and the time that Bridge printed."""
    losses = {step.step: step.loss for step in of_last}
    by_bridge = {step.step - 1: step for step in printed}  # its iterations count from 1
    for step in clocked:
        own = by_bridge.get(step.step, step)
        yield (
            step
            if step.rank
            else msgspec.structs.replace(
                step,
                loss=losses.get(step.step) if step.loss is None else step.loss,
                excluded_because=step.excluded_because or own.excluded_because,
                other_losses=own.other_losses,
                framework_seconds=own.framework_seconds,
                framework_tflops_per_device=own.framework_tflops_per_device or None,  # 0.0: too small to print
            )
        )


# --- the overrides ------------------------------------------------------------------------------


def overrides(benchmark: Benchmark) -> dict[str, str]:
    """Return every configuration field that Stepmark has resolved, with its value as Hydra reads it."""
    stated_otherwise = ("recipe",) if is_benchmark_recipe(benchmark) else ("recipe", FP8, FP8_RECIPE)
    sparse = benchmark.model.experts is not None
    return {
        **EVERY_RUN,
        **{key: text_of(value) for key, value in megatron.dimensions(benchmark.model, PLACE).items()},
        **experts.overrides(benchmark),
        "train.train_iters": str(benchmark.steps),
        "scheduler.lr_decay_iters": str(benchmark.steps),
        "train.global_batch_size": str(benchmark.batch.global_batch_size),
        "train.micro_batch_size": str(benchmark.batch.micro_batch_size),
        "model.seq_length": str(benchmark.batch.sequence_length),
        "dataset.seq_length": str(benchmark.batch.sequence_length),
        **_data(benchmark),
        **_precision(benchmark),
        **{
            key: hydra_text(key, value)
            for key, value in benchmark.settings.knobs.items()
            if key not in stated_otherwise
        },
        **_layout(benchmark),
        **(WITHOUT_TRANSFORMER_ENGINE if lacks_transformer_engine(benchmark) else {}),
        **(experts.WITHOUT_TRANSFORMER_ENGINE if sparse and lacks_transformer_engine(benchmark) else {}),
        **(ON_A_CPU if benchmark.hardware.kind == "cpu" else {}),
        **{
            key: hydra_text(key, value)
            for key, value in benchmark.settings.knobs.items()
            if key in benchmark.settings.overrides and key not in stated_otherwise
        },
    }


def words(settings: Mapping[str, str]) -> list[str]:
    """Return the overrides as Hydra reads them. LoRA objects are callable, so Hydra needs ++ before their fields."""
    return [f"{'++' if key.startswith('peft.') else ''}{key}={value}" for key, value in settings.items()]


def _layout(benchmark: Benchmark) -> dict[str, str]:
    share = benchmark.parallelism
    sizes = {f"{PLACE}.{size}": str(getattr(share, axis)) for axis, size in layout.SIZES.items()}
    if share.virtual_pipeline == 1:
        sizes[f"{PLACE}.{layout.SIZES['virtual_pipeline']}"] = "null"
    if share.pipeline > 1 and not is_benchmark_recipe(benchmark):
        sizes["model.pipeline_dtype"] = "float32" if benchmark.dtype == "fp32" else "bfloat16"
    shares_sequence = share.tensor > 1 and not lacks_transformer_engine(benchmark)
    return {**sizes, SEQUENCE_PARALLEL: text_of(benchmark.settings.knobs.get(SEQUENCE_PARALLEL, shares_sequence))}


def _precision(benchmark: Benchmark) -> dict[str, str]:
    """Return the fields of a benchmark recipe's precision, or the name of a library recipe's precision."""
    if is_benchmark_recipe(benchmark):
        return {"mixed_precision.bf16": "true", **PRECISION_FIELDS[benchmark.dtype]}
    if benchmark.dtype == "fp32":
        return {"mixed_precision": "null", "model.bf16": "false", "model.params_dtype": "float32"}
    if benchmark.dtype == "bf16":
        return {"mixed_precision": "bf16_mixed"}
    _, name = FP8_SCALINGS[_scaling(benchmark)]
    return {"mixed_precision": name}


def _scaling(benchmark: Benchmark) -> str:
    """Return Megatron's name of the scaling of quantized numbers; empty if nothing selects one."""
    separate = benchmark.dtype in ("mxfp8", "nvfp4")
    return benchmark.dtype if separate else str(benchmark.settings.knobs.get(FP8_RECIPE, ""))


def _data(benchmark: Benchmark) -> dict[str, str]:
    """Return the overrides for mock data or for the folder of --data (indexed tokens, or JSON lines for LoRA)."""
    made_up = benchmark.data in megatron.MADE_UP_DATA
    if benchmark.task == "lora" and not made_up:
        return {
            "dataset.dataset_root": quoted(benchmark.data),
            "dataset.dataset_kwargs": "{pad_to_max_length:true}",
            "tokenizer.tokenizer_type": "HuggingFaceTokenizer",
            "tokenizer.tokenizer_model": quoted(f"{benchmark.data}/tokenizer"),
        }
    if benchmark.task == "lora" and is_benchmark_recipe(benchmark):
        return {}
    tokens = {
        "tokenizer.tokenizer_type": "NullTokenizer",
        "tokenizer.vocab_size": str(benchmark.model.vocabulary_size),
    }
    if made_up:
        return {**tokens, "dataset.blend": "null", "dataset.data_path": "null"}
    folder = Path(benchmark.data)
    paths = ",".join(quoted(str(folder / prefix)) for prefix in megatron.dataset_prefixes(folder))
    places = {"dataset.data_path": f"[{paths}]", "dataset.path_to_cache": quoted("{phase_dir}/index")}
    # All of it is for training: Megatron loops forever over a split without documents, which a small dataset has.
    return {**tokens, **places, "dataset.split": "'1,0,0'"}


# Hydra reads a text of only these characters without quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_./:+*@%$?|-]+")


def hydra_text(key: str, value: Scalar) -> str:
    """Return `a,b` of a list setting in brackets, Hydra's own syntax unchanged, and other text quoted if needed."""
    if not isinstance(value, str) or value.startswith(("[", "{")):
        return text_of(value)
    if settings().get(key) == "list":
        return f"[{value}]"
    return value if _PLAIN.fullmatch(value) else quoted(value)


def quoted(text: str) -> str:
    """Return the text in quotes. In Hydra's quotes, only a backslash before a quote must be escaped."""
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text)
    return f"'{escaped}'"


# --- what Megatron-Bridge cannot run ------------------------------------------------------------


def refusals(benchmark: Benchmark) -> list[RequestError]:
    """Return why Megatron-Bridge cannot run the benchmark, without consequences of an earlier refusal.

    They repeat checks of Megatron-Bridge 0.6.2 and Megatron-core 0.19.2, which would fail only after every process
    has started. The job's first check finds other wrong overrides on one node.
    """
    schedule = partial(megatron.schedule_refusals, place=PLACE)
    sparse = partial(experts.refusals, without_transformer_engine=lacks_transformer_engine(benchmark))
    fields = "its settings are fields of Megatron-Bridge's configuration, such as model.recompute_num_layers"
    unknown = partial(megatron.unknown_settings, known=settings(), why=fields, other="nemo")
    rows = (unknown, _refuse_replaced, _refuse_precision, _refuse_recipe, _refuse_on_a_cpu, _refuse_pairs)
    for rules in (*rows, schedule, sparse, lora.refusals, _refuse_adapters, _refuse_data):
        found = list(rules(benchmark))
        if found:
            return found
    return []


def _refuse_replaced(benchmark: Benchmark) -> Iterator[RequestError]:
    """Refuse settings that the overlap of a benchmark recipe replaces: comm_overlap.X also decides model.X."""
    for key, value in benchmark.settings.knobs.items() if is_benchmark_recipe(benchmark) else ():
        group, _, field = key.partition(".")
        if group in ("model", "ddp", "optimizer") and f"comm_overlap.{field}" in settings():
            yield RequestError(
                f"{key} has no effect on recipe {benchmark.settings.knobs['recipe']}",
                where=f"--set={key}",
                why=f"Megatron-Bridge replaces it with comm_overlap.{field}, or with the default of that setting",
                next_command=f"--set={key} --set=comm_overlap.{field}={text_of(value)}",
            )


def _refuse_precision(benchmark: Benchmark) -> Iterator[RequestError]:
    given = [key for key in (FP8, FP8_RECIPE) if key in benchmark.settings.knobs]
    if benchmark.dtype == "fp8":
        yield from megatron.fp8_scaling_refusals(benchmark, FP8_RECIPE)
    elif given and not (benchmark.dtype == "mxfp8" and benchmark.settings.knobs.get(FP8_RECIPE) == "mxfp8"):
        yield RequestError(
            f"{given[0]} has no effect on {benchmark.dtype}",
            where=f"--set={given[0]}",
            why="it selects the scaling of fp8 numbers",
            next_command="--dtype=fp8",
        )


def _refuse_recipe(benchmark: Benchmark) -> Iterator[RequestError]:
    """Refuse a recipe whose name does not match the model, the task, or the precision if it contains one.

    A model for which NVIDIA has no recipe accepts any library recipe of its kind, with all dimensions as overrides: a
    Llama's for a dense model, and one of the same family for a model with experts.
    """
    task = TASKS[benchmark.task]
    precision, _ = FP8_SCALINGS.get(_scaling(benchmark), ("bf16", ""))
    name = str(benchmark.settings.knobs.get("recipe", ""))
    listed, model = recipes(), f"{benchmark.model.name}_"
    if hub_repository(benchmark.model.name) is None:
        listed = frozenset(_listed()["library_recipes"])
        model = f"{benchmark.model.family}_" if benchmark.model.experts else "llama"
    known = [one for one in listed if one.startswith(model) and f"_{task}_" in one]
    precisions = {one: PRECISION_IN_NAME.search(one) for one in known}
    fitting = sorted(one for one, found in precisions.items() if found is None or found[1] == precision)
    if name not in fitting:
        yield RequestError(
            f"Megatron-Bridge {VERSION} has no recipe '{name}' for {benchmark.dtype} {benchmark.task} of"
            f" {benchmark.model.name}: {nearest(name, fitting)}",
            where="--set=recipe",
            why="the recipe decides the model and the task, and is tuned for the precision in its name",
            next_command=f"--set=recipe={closest(name, fitting) or fitting[0]}" if fitting else "--engine=nemo",
        )


def _refuse_on_a_cpu(benchmark: Benchmark) -> Iterator[RequestError]:
    if benchmark.hardware.kind != "cpu":
        return
    yield from megatron.cpu_refusals(benchmark, RECOMPUTE, CONTEXT)
    if benchmark.settings.knobs.get(SEQUENCE_PARALLEL):
        place = f"--set={SEQUENCE_PARALLEL}"
        why = "without Transformer Engine, Megatron uses PyTorch's norm, which does not support sequence parallelism"
        yield RequestError("sequence parallelism needs a GPU", where=place, why=why, next_command=f"{place}=false")


def _refuse_pairs(benchmark: Benchmark) -> Iterator[RequestError]:
    tuned = is_benchmark_recipe(benchmark)  # its own settings, which overlap, replace those of the model
    return megatron.pair_refusals(benchmark, PLACE, "comm_overlap" if tuned else "model", overlaps=tuned)


def _refuse_adapters(benchmark: Benchmark) -> Iterator[RequestError]:
    weights = str(benchmark.settings.knobs.get(PRETRAINED, ""))
    if weights and not weights.startswith("/") and "://" not in weights:
        yield RequestError(
            "the path of the checkpoint is not absolute",
            where=f"--set={PRETRAINED}",
            why="each rank would look for it in the folder in which it starts",
            next_command=f"--set={PRETRAINED}={Path(weights).absolute()}",
        )
    if benchmark.task == "lora" and not weights and hub_repository(benchmark.model.name):
        yield RequestError(
            "Megatron-Bridge trains adapters only with a pretrained checkpoint",
            where=f"--set={PRETRAINED}",
            why=f"pass --set={PRETRAINED}=DIR with a Megatron checkpoint or a Hugging Face model folder of "
            f"{benchmark.model.name}; its weights do not affect the speed",
        )


def _refuse_data(benchmark: Benchmark) -> Iterator[RequestError]:
    if benchmark.data not in megatron.MADE_UP_DATA and benchmark.task == "lora" and is_benchmark_recipe(benchmark):
        yield RequestError(
            f"recipe {benchmark.settings.knobs['recipe']} trains adapters only on its own mock data",
            where=f"--data={benchmark.data}",
            why="only library recipes read --data: training.jsonl and validation.jsonl with the fields input and "
            "output",
            next_command="--data=",
        )
    else:
        yield from megatron.data_refusals(benchmark)
