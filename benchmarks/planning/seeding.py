"""A layout to begin with, for numbers of devices that no recipe names. Pure.

The recipe's nearest scale is taken, with as much of a batch for each device, and shared out among the devices there
are: so that it fits, and as much like the recipe's own layout as can be.
"""

from collections.abc import Iterator

import msgspec

from benchmarks.backend import Backend, RanksLayouts
from benchmarks.errors import RequestError
from benchmarks.planning.capacity import fits
from benchmarks.planning.layouts import micro_batches, settings_of, shares
from benchmarks.request.resolve import ConfigSource, NoLayoutError, Request, resolve
from benchmarks.values import Benchmark, Parallelism


def with_layout(request: Request, configs: ConfigSource, backend: Backend) -> Request:
    """The request as it is where its recipe has a layout for it, else with one in its settings."""
    try:
        resolve(request, configs, backend)
    except NoLayoutError as missing:
        return _seeded(request, missing, configs, backend)
    return request


def _seeded(request: Request, missing: NoLayoutError, configs: ConfigSource, backend: Backend) -> Request:
    gpus = missing.gpus
    scale = max((one for one in missing.scales if one <= gpus), default=missing.scales[0])
    settings = {name: text for name, text in request.settings.items() if name != "global_batch_size"}
    near = msgspec.structs.replace(request, gpus=scale, nodes=None, settings=settings)
    like = resolve(near, configs, backend)
    typed = request.settings.get("global_batch_size")
    like = msgspec.structs.replace(
        like, global_batch_size=int(typed) if typed else max(1, round(like.global_batch_size * gpus / scale))
    )
    refused: list[str] = []
    found = list(_requests(request, gpus, like, configs, backend, refused))
    if not found:
        raise RequestError(
            f"{like.model.name} cannot be shared among {gpus} devices in any way that {backend.title} has",
            where=missing.where,
            why=next(
                iter(refused), f"a batch of {like.global_batch_size} and the model's sizes divide by none of them"
            ),
            next_command="--gpus with whole nodes, and a number that the model's sizes divide by",
        ) from missing
    return next((one for one, benchmark in found if fits(benchmark, backend.storage(benchmark))), found[0][0])


def _requests(
    request: Request, gpus: int, like: Benchmark, configs: ConfigSource, backend: Backend, refused: list[str]
) -> Iterator[tuple[Request, Benchmark]]:
    """Each layout with the recipe's micro batch where that divides, the most alike first."""
    if not isinstance(backend, RanksLayouts):
        return
    for share in sorted(shares(like, gpus), key=lambda share: _unlike(share, like.parallelism)):
        layout = backend.layout_settings_for(like.engine, share, gpus, like.hardware)
        micros = micro_batches(like, share)
        if layout is None or not micros:
            continue
        micro = like.micro_batch_size if like.micro_batch_size in micros else micros[0]
        settings = settings_of(request, like.global_batch_size, {**layout, "micro_batch_size": micro})
        asked = msgspec.structs.replace(request, gpus=gpus, settings=settings)
        try:
            benchmark = resolve(asked, configs, backend)
        except RequestError as error:
            refused.append(error.what)
            continue
        if benchmark.parallelism == share:
            yield asked, benchmark


def _unlike(share: Parallelism, other: Parallelism) -> tuple[float, ...]:
    """In how many axes of a replica they differ; then by how much; then how many weights are held more than once."""
    inner = [
        (getattr(share, name), getattr(other, name)) for name in ("tensor", "pipeline", "context", "virtual_pipeline")
    ]
    apart = sum(max(one, two) / min(one, two) for one, two in inner)
    replicas = share.data if other.fsdp > 1 else share.fsdp
    return sum(one != two for one, two in inner), apart, replicas
