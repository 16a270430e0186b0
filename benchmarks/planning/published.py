"""A published row as the Benchmark that it was: the recipe of its backend, task and device, in the row's own layout.

Rows name a model, a layout and a batch, but not what is kept for the backward pass: that comes from the recipe. A row
whose model or GPU has no recipe is taken to be the same program with other dimensions, on another GPU.
"""

import msgspec

from benchmarks.backend import Backend
from benchmarks.errors import RequestError
from benchmarks.references.references import Reference
from benchmarks.request.resolve import ConfigSource, Request, resolve
from benchmarks.values import Benchmark, Recipe

# A program that refuses to begin without weights; how fast it is does not depend on what they hold.
SETTINGS = {("bridge", "lora"): {"checkpoint.pretrained_checkpoint": "/weights"}}


def as_benchmark(row: Reference, configs: ConfigSource, backend: Backend) -> Benchmark:
    """The row in Stepmark's own terms; RequestError where no recipe comes near it."""
    model, hardware = configs.model(row.model), configs.hardware(row.hardware)
    benchmark = resolve(_request(row, configs), configs, backend)
    replicas = row.data * row.fsdp
    return msgspec.structs.replace(
        benchmark,
        model=model,
        hardware=hardware,
        gpus=row.gpus,
        nodes=max(1, row.gpus // hardware.devices_per_node),
        parallelism=row.parallelism,
        sequence_length=row.sequence_length,
        micro_batch_size=row.micro_batch_size,
        gradient_accumulation=row.global_batch_size // (row.micro_batch_size * replicas),
        global_batch_size=row.global_batch_size,
    )


def _request(row: Reference, configs: ConfigSource) -> Request:
    """The recipe at a scale that it has; what the row says is put in afterwards."""
    fitting = [
        (recipe, name)
        for recipe in configs.recipes(row.backend)
        for name, dtypes in recipe.dtypes.items()
        if (recipe.engine, recipe.task) == (row.engine, row.task) and row.dtype in dtypes and _kin(name, row, configs)
    ]
    if not fitting:
        raise RequestError(
            f"no recipe of {row.engine} for {row.task} {row.dtype} on {row.hardware} or its like",
            where=f"configs/references: {row.name}",
            why="what a row keeps for its backward pass comes from a recipe",
        )
    recipe, on = min(
        fitting, key=lambda one: (row.model not in one[0].models, _general(one[0]), row.hardware != one[1])
    )
    return Request(
        backend=row.backend,
        engine=recipe.engine,
        model=row.model if row.model in recipe.models else recipe.models[0],
        task=row.task,
        dtype=row.dtype,
        hardware=on,
        gpus=recipe.layouts[0].gpus,
        recipe=recipe.name,
        settings=SETTINGS.get((recipe.engine, recipe.task), {}),
    )


def _general(recipe: Recipe) -> bool:
    """It is for GPUs of several generations, and no published program."""
    return len(recipe.hardware) > 2


def _kin(name: str, row: Reference, configs: ConfigSource) -> bool:
    """A device of the same kind: programs of GPUs are none of TPUs."""
    return name != "*" and configs.hardware(name).platform == configs.hardware(row.hardware).platform
