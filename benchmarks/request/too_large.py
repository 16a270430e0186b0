"""A run that the memory of a GPU does not hold: the refusal, which offers only what would fit. Pure."""

from collections.abc import Iterator

import msgspec

from benchmarks.backend import Backend
from benchmarks.errors import RequestError
from benchmarks.measuring.flops import parameter_count
from benchmarks.planning.capacity import fits, total_bytes, usable_bytes
from benchmarks.request.resolve import ANY, ConfigSource, Request, plan_command, resolve, scales
from benchmarks.values import Benchmark, Recipe

SHORTEST_SEQUENCE = 256  # that is offered


def refusals(benchmark: Benchmark, configs: ConfigSource, backend: Backend, here: int) -> Iterator[RequestError]:
    """`here`: how many GPUs of its kind this machine has."""
    storage = backend.storage(benchmark)
    needed, usable = total_bytes(benchmark, storage), usable_bytes(benchmark, storage)
    if usable is None or fits(benchmark, storage):
        return
    more = _more_gpus(benchmark, configs, backend)
    ways = [*_at_this_scale(benchmark, configs, backend), *(way for gpus, way in more if gpus <= here)]
    ways = ways or _other_work(benchmark, configs, backend)
    ways += [f"on another machine, {way}" for gpus, way in more if gpus > here]
    yield RequestError(
        f"{benchmark.model.name} needs {needed / 1e9:.1f} GB on each GPU, {usable / 1e9:.1f} GB are usable",
        where=f"--model={benchmark.model.name} --gpus={benchmark.gpus}",
        why=f"{benchmark.hardware.title} has {benchmark.hardware.memory_gb:g} GB",
        next_command="; or ".join(ways) or f"GPUs with more memory than {benchmark.hardware.memory_gb:g} GB",
    )


def _at_this_scale(benchmark: Benchmark, configs: ConfigSource, backend: Backend) -> list[str]:
    """A smaller batch; where none fits, shorter sequences; where those do not, other layouts."""
    asked = _asked(benchmark)

    def halved(name: str, value: int, least: int) -> list[str]:
        while (value := value // 2) >= least:
            smaller = msgspec.structs.replace(asked, settings={**asked.settings, name: str(value)})
            if _fits(smaller, configs, backend):
                return [f"--set={name}={value}"]
        return []

    return (
        halved("micro_batch_size", benchmark.micro_batch_size, 1)
        or halved("sequence_length", benchmark.sequence_length, SHORTEST_SEQUENCE)
        or _other_layouts(benchmark, configs, backend)
    )


def _other_layouts(benchmark: Benchmark, configs: ConfigSource, backend: Backend) -> list[str]:
    from benchmarks.planning.layouts import layouts
    from benchmarks.planning.read_once import ReadOnce

    asked = _asked(benchmark)
    found = layouts(asked, benchmark, ReadOnce(configs), backend)
    return [plan_command(asked)] if any(one and fits(one, backend.storage(one)) for one in found) else []


def _more_gpus(benchmark: Benchmark, configs: ConfigSource, backend: Backend) -> list[tuple[int, str]]:
    """The least number of them, and how it is asked for."""
    asked = _asked(benchmark)
    layout = backend.layout_settings & asked.settings.keys()
    settings = {name: text for name, text in asked.settings.items() if name not in layout}
    without = f" without --set={' and --set='.join(sorted(layout))}" if layout else ""
    sizes = scales(_recipe(benchmark, configs), benchmark.hardware)
    for gpus in (scale for scale in sizes if scale > benchmark.gpus):
        if _fits(msgspec.structs.replace(asked, gpus=gpus, settings=settings), configs, backend):
            return [(gpus, f"--gpus={gpus}{without}")]
    return []


def _other_work(benchmark: Benchmark, configs: ConfigSource, backend: Backend) -> list[str]:
    """Adapters instead of all weights, and the largest of the smaller models."""
    asked = msgspec.structs.replace(_asked(benchmark), engine=None, recipe=None)
    found = []
    if asked.task == "pretrain" and _fits(msgspec.structs.replace(asked, task="lora"), configs, backend):
        found.append("--task=lora")
    models = [configs.model(name) for name in _recipe(benchmark, configs).models if name != ANY]
    sizes = {model.name: parameter_count(model) for model in models}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        smaller = sizes[name] < parameter_count(benchmark.model)
        if smaller and _fits(msgspec.structs.replace(asked, model=name), configs, backend):
            return [*found, f"--model={name}"]
    return found


def _recipe(benchmark: Benchmark, configs: ConfigSource) -> Recipe:
    return next(recipe for recipe in configs.recipes(benchmark.backend) if recipe.name == benchmark.recipe.name)


def _asked(benchmark: Benchmark) -> Request:
    """The benchmark as it would be typed, less the global batch, which gives way to what fits."""
    return Request(
        backend=benchmark.backend,
        model=benchmark.model.name,
        task=benchmark.task,
        engine=benchmark.engine,
        dtype=benchmark.dtype,
        hardware=benchmark.hardware.name,
        gpus=benchmark.gpus,
        steps=benchmark.steps,
        window=benchmark.window,
        settings={name: text for name, text in benchmark.overrides.items() if name != "global_batch_size"},
        recipe=benchmark.recipe.name,
    )


def _fits(asked: Request, configs: ConfigSource, backend: Backend) -> bool:
    try:
        benchmark = resolve(asked, configs, backend)
    except RequestError:
        return False
    return fits(benchmark, backend.storage(benchmark))
