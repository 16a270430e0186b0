"""Ranks every layout that a cluster, a model and a framework allow. No I/O.

The global batch is fixed, so that all layouts do the same work. The backend and `resolve` refuse the layouts that a
framework does not support; this module has no rules for any framework.
"""

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Literal

import msgspec

from benchmarks.backend import Backend, RanksLayouts
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.bounds import bound
from benchmarks.model.capacity import fits, total_bytes
from benchmarks.model.estimate import BATCH
from benchmarks.request.resolve import NoLayoutError, Request, command_of, resolve
from benchmarks.values import Benchmark, Parallelism, Value, changed_benchmark

MICRO_BATCHES = (1, 2, 4)
CLOSE = 0.1  # layouts within 10% of the shortest bound are ranked by traffic; chosen with the published layouts

RankedBy = Literal["bound", "memory"]


class RankedLayout(Value, frozen=True):
    """A layout with its rank."""

    rank: int
    layout: str
    parallelism: Parallelism
    micro_batch_size: int
    gradient_accumulation: int
    bytes_needed: float
    bound_seconds: float | None
    really_seconds: float | None  # the bound with the traffic that the framework really has
    traffic_seconds: float | None  # over all connections, hidden or not; None: the rate of a connection is unknown
    settings: dict[str, str]


class Ranking(Value, frozen=True):
    """All layouts of a request that work and fit, best first."""

    by: RankedBy
    layouts: list[RankedLayout]
    tried: int
    refused: int  # by the framework, or because the model's sizes do not divide
    too_large: int  # need more memory than a device has


def rank(request: Request, configs: Configs, backend: Backend) -> Ranking:
    """Return the layouts that fit the request, including the requested one.

    Layouts whose bound (with the framework's actual traffic) is within 10% of the shortest come first, sorted by
    their traffic, because a bound assumes that traffic overlaps perfectly. The others follow, sorted by bound. If a
    bound is unknown, memory decides the order.
    """
    asked = resolve(request, configs, backend)
    tried = list(layouts(request, asked, configs, backend))
    working = [benchmark for benchmark in tried if isinstance(benchmark, Benchmark)]
    fitting = [benchmark for benchmark in working if fits(benchmark, backend.storage(benchmark))]
    bounds = [bound(benchmark, backend.storage(benchmark)) for benchmark in fitting]
    by: RankedBy = "bound" if bounds and all(one.seconds is not None for one in bounds) else "memory"
    shortest = min((one.really_seconds or 0.0 for one in bounds), default=0.0)
    found = []
    for benchmark, least in zip(fitting, bounds, strict=True):
        needed, traffic = total_bytes(benchmark, backend.storage(benchmark)), _rounded(least.traffic_seconds() or 0.0)
        time = _rounded(least.really_seconds or 0.0)
        is_close = (least.really_seconds or 0.0) <= shortest * (1 + CLOSE)
        place = (needed, traffic) if by == "memory" else (0.0 if is_close else time, traffic, time, needed)
        found.append((place, benchmark, least, needed))
    found.sort(key=lambda one: one[0])
    return Ranking(
        by=by,
        layouts=[
            RankedLayout(
                rank=number,
                layout=benchmark.parallelism.short(),
                parallelism=benchmark.parallelism,
                micro_batch_size=benchmark.batch.micro_batch_size,
                gradient_accumulation=benchmark.batch.gradient_accumulation,
                bytes_needed=needed,
                bound_seconds=least.seconds,
                really_seconds=least.really_seconds,
                traffic_seconds=least.traffic_seconds(),
                settings=benchmark.settings.overrides,
            )
            for number, (_, benchmark, least, needed) in enumerate(found, start=1)
        ],
        tried=len(tried),
        refused=len(tried) - len(working),
        too_large=len(working) - len(fitting),
    )


def is_same_layout(one: RankedLayout, other: Benchmark) -> bool:
    """Return whether both have the same layout and the same micro-batch size."""
    return (one.parallelism, one.micro_batch_size) == (other.parallelism, other.batch.micro_batch_size)


def _rounded(seconds: float) -> float:
    """Round to three digits, so that times which differ by less are equal."""
    return float(f"{seconds:.3g}")


def layouts(
    request: Request, asked: Benchmark, configs: Configs, backend: Backend
) -> Iterator[Benchmark | RequestError | None]:
    """Yield a benchmark or an error for each layout and micro-batch; None if the framework would use other axes."""
    if not isinstance(backend, RanksLayouts):
        return
    for share in shares(asked, asked.gpus):
        settings = backend.layout_settings_for(asked.engine, share, asked.gpus, asked.hardware)
        for micro in micro_batches(asked, share) if settings is not None else ():
            typed = settings_of(
                request, asked.batch.global_batch_size, {**(settings or {}), "micro_batch_size": micro}
            )
            try:
                benchmark = resolve(msgspec.structs.replace(request, settings=typed), configs, backend)
            except RequestError as error:
                yield error
            else:
                yield benchmark if benchmark.parallelism == share else None


# --- candidates ---------------------------------------------------------------------------------


def shares(asked: Benchmark, gpus: int) -> Iterator[Parallelism]:
    """Yield every division of `gpus` devices that the model's sizes allow."""
    model = asked.model
    for tensor in _divisors(gpus):
        if model.attention_heads % tensor or model.query_groups % tensor:
            continue
        for pipeline in _divisors(gpus // tensor):
            if model.layers % pipeline:
                continue
            for context in _divisors(gpus // tensor // pipeline):
                if asked.batch.sequence_length % context:
                    continue
                replicas = gpus // tensor // pipeline // context
                for data in _divisors(replicas):
                    for virtual in _divisors(model.layers // pipeline) if pipeline > 1 else [1]:
                        for expert in _divisors(gcd(gpus // pipeline, model.experts.count if model.experts else 1)):
                            yield Parallelism(
                                tensor=tensor,
                                pipeline=pipeline,
                                context=context,
                                data=data,
                                fsdp=replicas // data,
                                virtual_pipeline=virtual,
                                expert=expert,
                            )


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def micro_batches(asked: Benchmark, share: Parallelism) -> list[int]:
    """Return the micro-batch sizes that divide a replica's share of the global batch."""
    sequences, rest = divmod(asked.batch.global_batch_size, share.data * share.fsdp)
    if rest:
        return []
    wanted = {asked.batch.micro_batch_size, *MICRO_BATCHES}
    if asked.batch.gradient_accumulation == 1:
        wanted.add(sequences)  # the request uses no accumulation, so try the whole share of a replica at once
    return sorted(micro for micro in wanted if sequences % micro == 0)


def settings_of(request: Request, global_batch_size: int, layout: Mapping[str, object]) -> dict[str, str]:
    kept = {name: text for name, text in request.settings.items() if name not in BATCH}
    made = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in layout.items()}
    return {**kept, **made, "global_batch_size": str(global_batch_size)}


# --- a layout for a scale that the recipe lacks -------------------------------------------------


def with_layout(request: Request, configs: Configs, backend: Backend) -> Request:
    """Return the request unchanged if its recipe has a layout for it, otherwise with layout settings added.

    The added layout is as similar as possible to that of the recipe's nearest scale, with the same batch per device.
    """
    try:
        resolve(request, configs, backend)
    except NoLayoutError as missing:
        return _seeded(request, missing, configs, backend)
    return request


def layouts_command(request: Request, configs: Configs, backend: Backend) -> str:
    """Return the command that lists layouts for the requested GPUs. Raise RequestError if no layout exists."""
    recipes = (one for one in configs.recipes(request.backend) if request.model in one.models)
    devices = (one.defaults.hardware for one in recipes if one.task == request.task)
    device = request.hardware or next((name for name in devices if configs.hardware(name).kind == "gpu"), None)
    request = msgspec.structs.replace(request, hardware=device)
    with_layout(request, configs, backend)
    return command_of(request, "plan.py layouts")


def _seeded(request: Request, missing: NoLayoutError, configs: Configs, backend: Backend) -> Request:
    gpus = missing.gpus
    scale = max((one for one in missing.scales if one <= gpus), default=missing.scales[0])
    settings = {name: text for name, text in request.settings.items() if name != "global_batch_size"}
    near = resolve(msgspec.structs.replace(request, gpus=scale, nodes=None, settings=settings), configs, backend)
    typed = request.settings.get("global_batch_size")
    batch = int(typed) if typed else max(1, round(near.batch.global_batch_size * gpus / scale))
    like = changed_benchmark(near, gpus=gpus, global_batch_size=batch)
    request = msgspec.structs.replace(request, gpus=gpus)
    tried = list(layouts(request, like, configs, backend))
    ordered = sorted((one for one in tried if isinstance(one, Benchmark)), key=lambda one: _distance_from(one, like))
    best = {one.parallelism: one for one in reversed(ordered)}  # each layout with its most similar micro-batch
    found = [one for one in ordered if best[one.parallelism] is one]
    if not found:
        raise RequestError(
            f"{backend.title} has no layout that divides {like.model.name} among {gpus} devices",
            where=missing.where,
            why=next(
                (one.what for one in tried if isinstance(one, RequestError)),
                f"no layout divides both a batch of {batch} and the model's dimensions",
            ),
            next_command=missing.next_command,
        ) from missing
    chosen = next((one for one in found if fits(one, backend.storage(one))), found[0])
    return msgspec.structs.replace(request, settings=chosen.settings.overrides)


def _distance_from(one: Benchmark, like: Benchmark) -> tuple[float, ...]:
    """Return sort keys, smaller if nearer: differing axes, their ratios, weight replicas, then the micro-batch."""
    share, other = one.parallelism, like.parallelism
    axes = ("tensor", "pipeline", "context", "virtual_pipeline", "expert")
    inner = [(getattr(share, name), getattr(other, name)) for name in axes]
    apart = sum(max(mine, theirs) / min(mine, theirs) for mine, theirs in inner)
    replicas = share.data if other.fsdp > 1 else share.fsdp
    micro = one.batch.micro_batch_size != like.batch.micro_batch_size
    return sum(mine != theirs for mine, theirs in inner), apart, replicas, micro, one.batch.micro_batch_size
