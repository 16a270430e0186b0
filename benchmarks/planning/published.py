"""A published row as the Benchmark that it was: the recipe of its backend, task and device, in the row's own layout.

Rows name a model, a layout and a batch, but not what is kept for the backward pass: that comes from the recipe. A row
whose model has no recipe is taken to be the same program with other dimensions.
"""

import msgspec

from benchmarks.backend import Backend
from benchmarks.errors import RequestError
from benchmarks.references.references import Reference
from benchmarks.request.resolve import ConfigSource, Request, resolve
from benchmarks.values import Benchmark


def as_benchmark(row: Reference, configs: ConfigSource, backend: Backend) -> Benchmark:
    """The row in Stepmark's own terms; RequestError where no recipe comes near it."""
    model = configs.model(row.model)
    benchmark = resolve(_request(row, configs, backend), configs, backend)
    replicas = row.data * row.fsdp
    return msgspec.structs.replace(
        benchmark,
        model=model,
        gpus=row.gpus,
        nodes=max(1, row.gpus // benchmark.hardware.devices_per_node),
        parallelism=row.parallelism,
        sequence_length=row.sequence_length,
        micro_batch_size=row.micro_batch_size,
        gradient_accumulation=row.global_batch_size // (row.micro_batch_size * replicas),
        global_batch_size=row.global_batch_size,
    )


def _request(row: Reference, configs: ConfigSource, backend: Backend) -> Request:
    """The recipe at a scale that it has; what the row says is put in afterwards."""
    fitting = [
        recipe
        for recipe in configs.recipes(row.backend)
        if recipe.task == row.task
        and row.hardware in recipe.hardware
        and row.dtype in recipe.dtypes.get(row.hardware, [])
    ]
    if not fitting:
        raise RequestError(
            f"no recipe of {row.backend} for {row.task} {row.dtype} on {row.hardware}",
            where=f"configs/references: {row.name}",
            why="what a row keeps for its backward pass comes from a recipe",
        )
    recipe = min(fitting, key=lambda one: (row.model not in one.models, backend.engines.index(one.engine)))
    return Request(
        backend=row.backend,
        engine=recipe.engine,
        model=row.model if row.model in recipe.models else recipe.models[0],
        task=row.task,
        dtype=row.dtype,
        hardware=row.hardware,
        gpus=recipe.layouts[0].gpus,
        recipe=recipe.name,
    )
