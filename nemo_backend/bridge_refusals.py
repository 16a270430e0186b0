"""What Megatron-Bridge cannot run, known before anything starts: one message each. Pure.

The rules are Megatron-Bridge 0.6.2's and Megatron-core 0.19.2's own checks, which would end a job only after every
process has started; and the two that keep a recipe from being another benchmark than the one that was asked for.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.errors import RequestError, nearest
from benchmarks.request.framework import without_effect
from benchmarks.values import Benchmark, Hardware
from nemo_backend import bridge_planning as bridge
from nemo_backend.bridge_planning import FP8, FP8_RECIPE, FP8_SCALINGS, MADE_UP_DATA, PRETRAINED, TASKS
from nemo_backend.lora import AS_THEY_ARE, SEPARATE_TARGETS
from nemo_backend.megatron import FP8_SCALING_HARDWARE, dataset_refusals, schedule_refusals
from nemo_backend.profiles import NSYS

PRECISION_IN_NAME = re.compile(r"_(bf16|fp8[a-z]{2}|nvfp4)_")


def refusals(benchmark: Benchmark) -> list[RequestError]:
    """Why Megatron-Bridge cannot run the benchmark; what follows from an earlier refusal is not said again."""
    layout = partial(schedule_refusals, place=bridge.PLACE)
    for rules in (_platform, _settings, _recipe, _dtype, layout, _adapters, _data):
        found = list(rules(benchmark))
        if found:
            return found
    return []


def refuses_hardware(hardware: Hardware) -> RequestError | None:
    if hardware.platform == "cuda":
        return None
    return RequestError(
        f"Megatron-Bridge does not run on {hardware.title}",
        where=f"--engine=bridge --hardware={hardware.name}",
        why="it imports NVIDIA's Transformer Engine without asking and asserts that CUDA is there",
        next_command="--engine=nemo, which runs on a CPU too",
    )


def _platform(benchmark: Benchmark) -> Iterator[RequestError]:
    refusal = refuses_hardware(benchmark.hardware)
    if refusal is not None:
        yield refusal
    if benchmark.task not in TASKS:
        yield RequestError(
            f"engine bridge has no task '{benchmark.task}'",
            where=f"--task={benchmark.task}",
            why=f"it has: {', '.join(TASKS)}",
            next_command="--task=pretrain",
        )


def _settings(benchmark: Benchmark) -> Iterator[RequestError]:
    for key in ("profiling.nvtx_ranges", "profiling.record_shapes"):  # they write into a report of nsys
        if key in benchmark.overrides and benchmark.profile != NSYS:
            yield without_effect(key, f"--profile={benchmark.profile} but the time it takes", f"--profile={NSYS}")
    for key in benchmark.knobs:
        if key not in bridge.settings():
            yield RequestError(
                f"engine bridge has no setting '{key}': {nearest(key, bridge.settings())}",
                where=f"--set={key}",
                why="its settings are fields of Megatron-Bridge's configuration, such as model.recompute_num_layers;"
                " trainer., data. and the like are of the engine nemo",
                next_command="--engine=nemo, or the setting's name in Megatron-Bridge",
            )


# --- the recipe that run_recipe.py is given ------------------------------------------------------


def _recipe(benchmark: Benchmark) -> Iterator[RequestError]:
    name = str(benchmark.knobs.get("recipe", ""))
    known = bridge.benchmark_recipes() | bridge.library_recipes()
    fitting = sorted(candidate for candidate in known if _is_of(candidate, benchmark))
    instead = f"--set=recipe={fitting[0]}" if fitting else "--engine=nemo"
    if name not in known:
        yield RequestError(
            f"Megatron-Bridge {bridge.VERSION} has no recipe '{name}': {nearest(name, fitting or known)}",
            where="--set=recipe",
            why="run_recipe.py takes its own recipes by name",
            next_command=instead,
        )
    elif name not in fitting:
        yield RequestError(
            f"recipe {name} is not for {benchmark.task} of {benchmark.model.name}",
            where="--set=recipe",
            why="the model and the task that run would be the recipe's",
            next_command=instead,
        )
    else:
        yield from _precision_of_recipe(name, benchmark)


def _is_of(recipe: str, benchmark: Benchmark) -> bool:
    """A recipe's name begins with the model, in Stepmark's words too, and names the task."""
    _, task = TASKS[benchmark.task]
    return recipe.startswith(f"{benchmark.model.name}_") and f"_{task}_" in recipe


def _precision_of_recipe(name: str, benchmark: Benchmark) -> Iterator[RequestError]:
    said = PRECISION_IN_NAME.search(name)
    scaling = str(benchmark.knobs.get(FP8_RECIPE, ""))
    wanted = "bf16" if benchmark.dtype == "bf16" else FP8_SCALINGS.get(scaling, ("",))[0]
    if said and wanted and said[1] != wanted:
        yield RequestError(
            f"recipe {name} is for {said[1]}, the benchmark for {wanted}",
            where="--set=recipe",
            why="a benchmark recipe is tuned for the precision in its name",
            next_command=f"--set=recipe={name.replace(said[1], wanted)}, where Megatron-Bridge has it",
        )


# --- precision ----------------------------------------------------------------------------------


def _dtype(benchmark: Benchmark) -> Iterator[RequestError]:
    if benchmark.dtype == "fp8":
        yield from _scaling(benchmark)
    elif benchmark.dtype != "bf16":
        yield RequestError(
            f"engine bridge has no {benchmark.dtype}",
            where=f"--dtype={benchmark.dtype}",
            why="Stepmark drives it at bf16 and fp8",
            next_command="--dtype=bf16",
        )
    elif FP8 in benchmark.knobs or FP8_RECIPE in benchmark.knobs:
        yield RequestError(
            "an fp8 setting was given for a bf16 benchmark",
            where=f"--set={FP8 if FP8 in benchmark.knobs else FP8_RECIPE}",
            why="the result would be called bf16",
            next_command="--dtype=fp8",
        )
    if not bridge.is_benchmark_recipe(benchmark):
        yield from _fields_of_a_named_precision(benchmark)


def _scaling(benchmark: Benchmark) -> Iterator[RequestError]:
    scaling = str(benchmark.knobs.get(FP8_RECIPE, ""))
    if scaling not in FP8_SCALINGS:
        yield RequestError(
            f"how fp8 numbers are scaled is not known: {nearest(scaling, FP8_SCALINGS)}",
            where=f"--set={FP8_RECIPE}",
            why=f"fp8 is one of: {', '.join(FP8_SCALINGS)}; their speeds differ",
            next_command=f"--set={FP8_RECIPE}=tensorwise",
        )
        return
    if benchmark.hardware.name not in FP8_SCALING_HARDWARE[scaling]:
        possible = [name for name, known in FP8_SCALING_HARDWARE.items() if benchmark.hardware.name in known]
        yield RequestError(
            f"{benchmark.hardware.title} has no {scaling} scaling of fp8",
            where=f"--set={FP8_RECIPE}={scaling}",
            why=f"it has: {', '.join(possible) or 'none that Megatron-Bridge names'}",
            next_command=f"--set={FP8_RECIPE}={possible[0]}" if possible else "--dtype=bf16",
        )


def _fields_of_a_named_precision(benchmark: Benchmark) -> Iterator[RequestError]:
    """A library recipe may hold its precision as a name, which has no fields to override."""
    fields = [key for key in benchmark.knobs if key.startswith("mixed_precision.") and key not in (FP8, FP8_RECIPE)]
    if fields:
        yield RequestError(
            f"{fields[0]} cannot be set with a library recipe",
            where=f"--set={fields[0]}",
            why=f"{benchmark.knobs['recipe']} takes its precision as one name, chosen by --dtype and {FP8_RECIPE}",
            next_command=f"--set=recipe= with a benchmark recipe, or no {fields[0]}",
        )


# --- LoRA and data --------------------------------------------------------------------------------


def _adapters(benchmark: Benchmark) -> Iterator[RequestError]:
    if benchmark.task == "lora" and PRETRAINED not in benchmark.knobs:
        yield RequestError(
            "Megatron-Bridge trains adapters only beside weights that it has read",
            where=f"--set={PRETRAINED}",
            why="it refuses LoRA without a pretrained checkpoint; the speed does not depend on what it holds",
            next_command=f"--set={PRETRAINED}=DIR, a Megatron checkpoint or a Hugging Face model folder of"
            f" {benchmark.model.name}",
        )

    separate = benchmark.lora and set(benchmark.lora.targets) & set(SEPARATE_TARGETS.values())
    if separate:
        yield RequestError(
            "engine bridge trains adapters beside Megatron's fused matrices alone",
            where="--set=peft.target_modules",
            why="the recipes of Megatron-Bridge make them by its LoRA, and take no other kind",
            next_command=f"--set=peft.target_modules={AS_THEY_ARE}, or --engine=nemo",
        )


def _data(benchmark: Benchmark) -> Iterator[RequestError]:
    made_up, tuned = benchmark.data in MADE_UP_DATA, bridge.is_benchmark_recipe(benchmark)
    library = f"--set=recipe={benchmark.model.name}_peft_config"
    if benchmark.task == "lora" and not made_up and tuned:
        yield RequestError(
            "a benchmark recipe of Megatron-Bridge trains adapters on its own mock data",
            where=f"--data={benchmark.data}",
            why="run_recipe.py gives it no other",
            next_command=f"no --data, or {library}",
        )
    elif benchmark.task == "lora" and made_up and not tuned:
        yield RequestError(
            "a library recipe of Megatron-Bridge trains adapters on real text only",
            where="--data",
            why="run_recipe.py has mock data for pretraining and for benchmark recipes",
            next_command="--data=DIR with training.jsonl and validation.jsonl (fields input and output)",
        )
    elif benchmark.task == "pretrain" and not made_up:
        yield from dataset_refusals(Path(benchmark.data), benchmark.model)
