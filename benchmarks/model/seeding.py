"""A layout to begin with, for numbers of devices that no recipe names. Pure.

The recipe's nearest scale is taken, with as much of a batch for each device, and shared out among the devices there
are: so that it fits, and as much like the recipe's own layout as can be.
"""

import msgspec

from benchmarks.backend import Backend
from benchmarks.errors import RequestError
from benchmarks.model.capacity import fits
from benchmarks.model.layouts import layouts
from benchmarks.request.resolve import ConfigSource, NoLayoutError, Request, resolve
from benchmarks.values import Benchmark


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
    near = resolve(msgspec.structs.replace(request, gpus=scale, nodes=None, settings=settings), configs, backend)
    typed = request.settings.get("global_batch_size")
    batch = int(typed) if typed else max(1, round(near.global_batch_size * gpus / scale))
    like = msgspec.structs.replace(near, gpus=gpus, global_batch_size=batch)
    request = msgspec.structs.replace(request, gpus=gpus)
    tried = list(layouts(request, like, configs, backend))
    ordered = sorted((one for one in tried if isinstance(one, Benchmark)), key=lambda one: _unlike(one, like))
    found = list(
        reversed({one.parallelism: one for one in reversed(ordered)}.values())
    )  # each with its best micro batch
    if not found:
        raise RequestError(
            f"{like.model.name} cannot be shared among {gpus} devices in any way that {backend.title} has",
            where=missing.where,
            why=next(
                (one.what for one in tried if isinstance(one, RequestError)),
                f"a batch of {batch} and the model's sizes divide by none of them",
            ),
            next_command="--gpus with whole nodes, and a number that the model's sizes divide by",
        ) from missing
    chosen = next((one for one in found if fits(one, backend.storage(one))), found[0])
    return msgspec.structs.replace(request, settings=chosen.overrides)


def _unlike(one: Benchmark, like: Benchmark) -> tuple[float, ...]:
    """In how many axes of a replica they differ; then by how much; then how many weights are held more than once."""
    share, other = one.parallelism, like.parallelism
    inner = [
        (getattr(share, name), getattr(other, name)) for name in ("tensor", "pipeline", "context", "virtual_pipeline")
    ]
    apart = sum(max(mine, theirs) / min(mine, theirs) for mine, theirs in inner)
    replicas = share.data if other.fsdp > 1 else share.fsdp
    micro = one.micro_batch_size != like.micro_batch_size
    return sum(mine != theirs for mine, theirs in inner), apart, replicas, micro, one.micro_batch_size
