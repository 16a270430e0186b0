"""A Benchmark -> the command of a Megatron-Bridge run, in its container; and what that engine must refuse. Pure.

The program is Megatron-Bridge's own scripts/training/run_recipe.py: it takes a recipe by name, then `key=value`
overrides of any field of its configuration. Everything Stepmark has resolved is stated as an override, so the run
is the benchmark and not the recipe's defaults; what no override can say (the buffers of the tensor parallel
overlap, fused kernels) comes with the recipe that the knob `recipe` names.

There are two kinds of recipe: a benchmark recipe is tuned for the hardware and precision in its name and brings mock
data; a library recipe (MODEL_pretrain_config) has neither. Facts are for Megatron-Bridge 0.6.2.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.assets import Repository, hub_home
from benchmarks.backend import EnvironmentSpec
from benchmarks.configs import parse_yaml
from benchmarks.errors import RequestError, nearest
from benchmarks.request.framework import DIMENSIONS_ARE_THE_MODELS, FILLED, program, text_of
from benchmarks.runs import first_check
from benchmarks.values import Benchmark, Hardware, Phase, Plan, RunRecord, Scalar, Step
from nemo_backend import layout, profiles
from nemo_backend.lora import AS_THEY_ARE, SEPARATE_TARGETS
from nemo_backend.megatron import (
    DIMENSIONS,
    dataset_prefixes,
    dataset_refusals,
    dimensions,
    fp8_scaling_refusals,
    reserved,
    schedule_refusals,
)

VERSION = "0.6.2"  # of the sources that bridge_settings.yml lists
# Megatron-Bridge 0.6.0 of 2026-08-19 is that of "NeMo Framework 26.08" (its release notes), and its Llama recipes and
# settings are the wheel's; 26.06 holds 0.5.0, 26.04 0.4.0 (v0.6.0, docs/releases/software-versions.md; 2026-11-23).
CONTAINER = "nvcr.io/nvidia/nemo:26.08"
SCRIPT = "/opt/Megatron-Bridge/scripts/training/run_recipe.py"

PLACE = layout.PLACES["bridge"]
SEQUENCE_PARALLEL = f"{PLACE}.sequence_parallel"
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
PRECISION_IN_NAME = re.compile(r"_(bf16|fp8[a-z]{2}|nvfp4)_")

RESERVED: Mapping[str, str] = {
    **reserved("bridge"),
    **dict.fromkeys((f"{PLACE}.{name}" for name in DIMENSIONS), DIMENSIONS_ARE_THE_MODELS),
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


def recipes() -> frozenset[str]:
    return frozenset((*_listed()["benchmark_recipes"], *_listed()["library_recipes"]))


def is_benchmark_recipe(benchmark: Benchmark) -> bool:
    return benchmark.settings.knobs.get("recipe") in frozenset(_listed()["benchmark_recipes"])


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


def environment(engine: str, platform: str) -> EnvironmentSpec:  # noqa: ARG001
    return EnvironmentSpec(name=CONTAINER, locks=(), import_check="megatron.bridge", image=CONTAINER)


# --- the plan -----------------------------------------------------------------------------------


def plan(benchmark: Benchmark) -> Plan:
    cache = hub_home(benchmark.site)
    # The model's configuration is read from the site's cache: thousands of ranks ask no hub, and need no token.
    variables = {
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        **({"HF_HOME": str(cache)} if cache else {}),
        **benchmark.settings.environment,
    }
    perf = profiles.perf_phase(benchmark, command(benchmark), variables, [f"{cache}:{cache}"] if cache else [])
    return Plan(backend=benchmark.backend, environment_name=benchmark.settings.image or CONTAINER, phases=[perf])


def command(benchmark: Benchmark) -> list[str]:
    """Return the command that a user of Megatron-Bridge would type in its container, once per GPU."""
    mode, _ = TASKS[benchmark.task]
    kind = "megatron-indexed" if benchmark.task == "pretrain" else "local-jsonl"
    preset = "mock" if benchmark.data in MADE_UP_DATA else kind
    return [
        "{python}",
        SCRIPT,
        f"--recipe={benchmark.settings.knobs['recipe']}",
        f"--mode={mode}",
        *([] if is_benchmark_recipe(benchmark) else [f"--dataset={preset}"]),
        *words(overrides(benchmark)),
    ]


def check_phase(benchmark: Benchmark) -> Phase:
    """Return the phase that checks one node before the others start, with the run's command as arguments."""
    (trains,) = plan(benchmark).phases
    _, *run = command(benchmark)
    look = [
        *program("nemo_backend/inside/bridge_check.py"),
        "--events_dir={phase_dir}",
        f"--processes={benchmark.gpus}",
        f"--tasks_per_node={benchmark.gpus // benchmark.nodes}",
        *(f"--device_name={name}" for name in benchmark.hardware.device_names),
        "--",
        *run,
    ]
    return first_check.check_phase(trains, look)


def read_phase(benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:
    from nemo_backend import bridge_reading

    return bridge_reading.read_phase(benchmark, phase_dir, attempt)


def follow(benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
    from nemo_backend import bridge_reading

    return bridge_reading.follow(benchmark, phase_dir, attempt)


# --- the overrides ------------------------------------------------------------------------------


def overrides(benchmark: Benchmark) -> dict[str, str]:
    """Every field of the run's configuration that Stepmark has resolved, each once, as Hydra reads it."""
    stated_otherwise = ("recipe",) if is_benchmark_recipe(benchmark) else ("recipe", FP8, FP8_RECIPE)
    return {
        **EVERY_RUN,
        **{key: text_of(value) for key, value in dimensions(benchmark.model, PLACE).items()},
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
        **profiles.bridge_settings(benchmark.instruments.profiling),
    }


def words(settings: Mapping[str, str]) -> list[str]:
    """Return overrides as Hydra reads them; it takes LoRA's fields only as new, because a LoRA object is callable."""
    return [f"{'++' if key.startswith('peft.') else ''}{key}={value}" for key, value in settings.items()]


def _layout(benchmark: Benchmark) -> dict[str, str]:
    share = benchmark.parallelism
    sizes = {f"{PLACE}.{size}": str(getattr(share, axis)) for axis, size in layout.SIZES.items()}
    if share.virtual_pipeline == 1:
        sizes[f"{PLACE}.{layout.SIZES['virtual_pipeline']}"] = "null"
    return {**sizes, SEQUENCE_PARALLEL: text_of(benchmark.settings.knobs.get(SEQUENCE_PARALLEL, share.tensor > 1))}


def _precision(benchmark: Benchmark) -> dict[str, str]:
    """A benchmark recipe holds its precision as fields, a library recipe takes the name of a whole."""
    if is_benchmark_recipe(benchmark):
        return {"mixed_precision.bf16": "true", **({FP8: "null"} if benchmark.dtype == "bf16" else {})}
    if benchmark.dtype == "bf16":
        return {"mixed_precision": "bf16_mixed"}
    _, name = FP8_SCALINGS[str(benchmark.settings.knobs[FP8_RECIPE])]
    return {"mixed_precision": name}


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
    paths = ",".join(quoted(str(folder / prefix)) for prefix in dataset_prefixes(folder))
    return {**tokens, "dataset.data_path": f"[{paths}]", "dataset.path_to_cache": quoted("{phase_dir}/index")}


# A text of only these is one word in Hydra's grammar.
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


# --- what Megatron-Bridge cannot run ------------------------------------------------------------


def refuses_hardware(hardware: Hardware) -> RequestError | None:
    if hardware.platform == "cuda":
        return None
    return RequestError(
        f"Megatron-Bridge does not run on {hardware.title}",
        where=f"--engine=bridge --hardware={hardware.name}",
        why="it always imports NVIDIA's Transformer Engine and needs CUDA; engine nemo also runs on a CPU",
        next_command="--engine=nemo",
    )


def refusals(benchmark: Benchmark) -> list[RequestError]:
    """Return why Megatron-Bridge cannot run the benchmark, without consequences of an earlier refusal.

    These repeat its own checks (0.6.2, and Megatron-core's 0.19.2), which would end a job only after every process
    has started. The job's first check finds other wrong overrides on one node.
    """
    schedule = partial(schedule_refusals, place=PLACE)
    for rules in (_refuse_settings, _refuse_precision, _refuse_recipe, schedule, _refuse_adapters, _refuse_data):
        found = list(rules(benchmark))
        if found:
            return found
    return []


def _refuse_settings(benchmark: Benchmark) -> Iterator[RequestError]:
    for key in benchmark.settings.knobs:
        if key not in settings():
            yield RequestError(
                f"engine bridge has no setting '{key}': {nearest(key, settings())}",
                where=f"--set={key}",
                why="its settings are fields of Megatron-Bridge's configuration, such as model.recompute_num_layers",
                next_command="--engine=nemo",
            )


def _refuse_precision(benchmark: Benchmark) -> Iterator[RequestError]:
    given = [key for key in (FP8, FP8_RECIPE) if key in benchmark.settings.knobs]
    if benchmark.dtype == "fp8":
        yield from fp8_scaling_refusals(benchmark, FP8_RECIPE)
    elif given:
        yield RequestError(
            f"{given[0]} has no effect on {benchmark.dtype}",
            where=f"--set={given[0]}",
            why="it selects the scaling of fp8 numbers",
            next_command="--dtype=fp8",
        )


def _refuse_recipe(benchmark: Benchmark) -> Iterator[RequestError]:
    """A recipe's name begins with the model, in Stepmark's words too, names the task, and may name the precision."""
    _, task = TASKS[benchmark.task]
    precision, _ = FP8_SCALINGS.get(str(benchmark.settings.knobs.get(FP8_RECIPE)), ("bf16", ""))
    name = str(benchmark.settings.knobs.get("recipe", ""))
    known = [one for one in recipes() if one.startswith(f"{benchmark.model.name}_") and f"_{task}_" in one]
    precisions = {one: PRECISION_IN_NAME.search(one) for one in known}
    fitting = sorted(one for one, found in precisions.items() if found is None or found[1] == precision)
    if name not in fitting:
        yield RequestError(
            f"Megatron-Bridge {VERSION} has no recipe '{name}' for {precision} {benchmark.task} of"
            f" {benchmark.model.name}: {nearest(name, fitting)}",
            where="--set=recipe",
            why="the recipe decides the model and the task, and is tuned for the precision in its name",
            next_command=f"--set=recipe={fitting[0]}" if fitting else "--engine=nemo",
        )


def _refuse_adapters(benchmark: Benchmark) -> Iterator[RequestError]:
    if benchmark.task == "lora" and PRETRAINED not in benchmark.settings.knobs:
        yield RequestError(
            "Megatron-Bridge trains adapters only with a pretrained checkpoint",
            where=f"--set={PRETRAINED}",
            why=f"DIR in --set={PRETRAINED}=DIR is a Megatron checkpoint or a Hugging Face model folder of "
            f"{benchmark.model.name}; the speed does not depend on its weights",
        )
    if benchmark.lora and set(benchmark.lora.targets) & set(SEPARATE_TARGETS.values()):
        yield RequestError(
            "engine bridge trains adapters only on Megatron's fused matrices",
            where="--set=peft.target_modules",
            why="the recipes of Megatron-Bridge support only its LoRA; engine nemo also adapts separate matrices",
            next_command=f"--set=peft.target_modules={AS_THEY_ARE}",
        )


def _refuse_data(benchmark: Benchmark) -> Iterator[RequestError]:
    made_up, tuned = benchmark.data in MADE_UP_DATA, is_benchmark_recipe(benchmark)
    if benchmark.task == "pretrain" and not made_up:
        yield from dataset_refusals(Path(benchmark.data))
    if benchmark.task == "lora" and made_up != tuned:
        only = "its own mock data" if tuned else "real text"
        yield RequestError(
            f"recipe {benchmark.settings.knobs['recipe']} trains adapters on {only} only",
            where=f"--data={benchmark.data}",
            why="run_recipe.py uses mock data for benchmark recipes; for others, pass --data=DIR with "
            "training.jsonl and validation.jsonl (fields input and output)",
            next_command="--data=" if tuned else "",
        )
