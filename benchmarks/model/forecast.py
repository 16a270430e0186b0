"""Forecasts a run before it starts: memory, bound, estimate, scaling and cost. No I/O."""

import math
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.bounds import Bound, bound
from benchmarks.model.capacity import memory_by_part, usable_bytes
from benchmarks.model.estimate import Estimate, PublishedData, estimate, read_published
from benchmarks.model.layouts import Ranking, rank, with_layout
from benchmarks.request.resolve import Request, resolve, scales
from benchmarks.values import Benchmark, BenchmarkName, Parallelism, Storage, Value, name_words

SCHEMA_VERSION = 1
SECONDS_AN_HOUR = 3600
UNITS = {"T": 10**12, "B": 10**9, "M": 10**6}


class Memory(Value, frozen=True):
    """The bytes that one device needs at the peak of a step."""

    parts: dict[str, float]
    total_bytes: float
    usable_bytes: float | None  # None: unknown, because the devices share the host's memory
    fits: bool | None
    margin_bytes: float | None  # usable minus needed memory; negative: memory is missing
    margin_percent: float | None  # the margin as a share of the usable memory
    devices: int
    not_counted: list[str] = []  # settings that change the memory by an unknown amount


class Forecast(Value, frozen=True):
    """The forecast of one benchmark before it is run."""

    memory: Memory
    bound: Bound
    estimate: Estimate

    @property
    def seconds(self) -> float | None:
        """Return the estimated step time, or the bound if there is no estimate; `basis` names which."""
        return self.bound.seconds if self.estimate.seconds is None else self.estimate.seconds

    @property
    def basis(self) -> str:
        return "bound" if self.estimate.seconds is None else "estimate"


class ScalePoint(Value, frozen=True):
    """The forecast of the same recipe on another number of devices. For a refused scale, only `refused` is set."""

    gpus: int
    refused: str = ""
    layout: str = ""
    global_batch_size: int | None = None
    fits: bool | None = None
    bound_seconds: float | None = None
    estimate_seconds: float | None = None
    tokens_per_second: float | None = None
    efficiency: float | None = None  # tokens/s per device, relative to the smallest scale that fits
    basis: str = ""  # of tokens/s and efficiency: estimate or bound
    of_recipe: bool = True  # False: the recipe has no layout for this number of GPUs


class Cost(Value, frozen=True):
    """The cost of training on a number of tokens; a lower limit if its basis is the bound."""

    tokens: int
    steps: int
    basis: str
    days: float
    gpu_hours: float
    price_usd_per_gpu_hour: float | None
    usd: float | None


class PlannedBenchmark(BenchmarkName, frozen=True):
    """The name of a planned benchmark, its layout and its batch."""

    parallelism: Parallelism
    micro_batch_size: int
    gradient_accumulation: int
    recipe: str


class PlanReport(Forecast, frozen=True, kw_only=True):
    """The report of launch/plan.py."""

    schema_version: int = SCHEMA_VERSION
    benchmark: PlannedBenchmark
    scaling: list[ScalePoint]
    cost: Cost | None  # None: neither a bound nor an estimate is known
    layouts: Ranking | None = None  # None: not requested


def plan_report(
    request: Request,
    benchmark: Benchmark,
    configs: Configs,
    backend: Backend,
    *,
    at_scales: Sequence[int],
    tokens: int,
    price: float | None,
    ranked: bool,
) -> PlanReport:
    """Return the report of one benchmark. If `at_scales` is empty, use the recipe's scales and this benchmark's."""
    published = read_published(configs)
    found = forecast(benchmark, backend.storage(benchmark), published)
    if not at_scales:
        states_layout = bool(backend.layout_settings & request.settings.keys())  # the layout is for one scale only
        own = () if states_layout else scales(configs.recipe(benchmark.recipe.name), benchmark.hardware)
        at_scales = sorted({benchmark.gpus, *own})
    return PlanReport(
        **msgspec.structs.asdict(found),
        benchmark=PlannedBenchmark(
            **name_words(benchmark),
            parallelism=benchmark.parallelism,
            micro_batch_size=benchmark.batch.micro_batch_size,
            gradient_accumulation=benchmark.batch.gradient_accumulation,
            recipe=benchmark.recipe.name,
        ),
        scaling=scaling(
            msgspec.structs.replace(request, recipe=benchmark.recipe.name),  # all scales use the same recipe
            at_scales,
            lambda asked: resolve(with_layout(asked, configs, backend), configs, backend),
            backend,
            published,
        ),
        cost=cost(benchmark, found, tokens, price),
        layouts=rank(with_layout(request, configs, backend), configs, backend) if ranked else None,
    )


def memory_of(benchmark: Benchmark, storage: Storage) -> Memory:
    parts = memory_by_part(benchmark, storage)
    total, usable = sum(parts.values()), usable_bytes(benchmark, storage)
    return Memory(
        parts=parts,
        total_bytes=total,
        usable_bytes=usable,
        fits=None if usable is None else total <= usable,
        margin_bytes=None if usable is None else usable - total,
        margin_percent=None if usable is None else 100 * (1 - total / usable),
        devices=benchmark.gpus,
        not_counted=list(storage.uncounted),
    )


def forecast(benchmark: Benchmark, storage: Storage, published: PublishedData) -> Forecast:
    found = bound(benchmark, storage)
    return Forecast(memory=memory_of(benchmark, storage), bound=found, estimate=estimate(benchmark, found, published))


# --- scaling ------------------------------------------------------------------------------------


def scaling(
    request: Request,
    scales: Sequence[int],
    resolved: Callable[[Request], Benchmark],
    backend: Backend,
    published: PublishedData,
) -> list[ScalePoint]:
    """Return the forecast of the request at each scale, or why the scale is refused."""
    points: list[ScalePoint] = []
    tokens: dict[int, int] = {}  # scale -> tokens per step
    for gpus in sorted(scales):
        try:
            benchmark = resolved(msgspec.structs.replace(request, gpus=gpus, nodes=None))
        except RequestError as error:
            points.append(ScalePoint(gpus=gpus, refused=error.what))
            continue
        found = forecast(benchmark, backend.storage(benchmark), published)
        tokens[gpus] = benchmark.tokens_per_step
        points.append(
            ScalePoint(
                gpus=gpus,
                layout=benchmark.parallelism.short(),
                of_recipe=benchmark.recipe.global_batch_size is not None,
                global_batch_size=benchmark.batch.global_batch_size,
                fits=found.memory.fits,
                bound_seconds=found.bound.seconds,
                estimate_seconds=found.estimate.seconds,
            )
        )
    # A column holds either estimates or bounds, never both.
    estimated = all(point.estimate_seconds is not None for point in points if not point.refused)
    basis = "estimate" if estimated else "bound"
    smallest = 0.0
    for place, point in enumerate(points):
        seconds = point.estimate_seconds if estimated else point.bound_seconds
        if seconds and point.fits is not False:
            speed = tokens[point.gpus] / seconds
            smallest = smallest or speed / point.gpus
            points[place] = msgspec.structs.replace(
                point, tokens_per_second=speed, efficiency=speed / point.gpus / smallest, basis=basis
            )
    return points


# --- cost ---------------------------------------------------------------------------------------


def cost(benchmark: Benchmark, found: Forecast, tokens: int, price: float | None) -> Cost | None:
    """Return the cost of training on `tokens` tokens; None if no step time is known."""
    if found.seconds is None:
        return None
    steps = math.ceil(tokens / benchmark.tokens_per_step)
    hours = steps * found.seconds / SECONDS_AN_HOUR
    return Cost(
        tokens=tokens,
        steps=steps,
        basis=found.basis,
        days=hours / 24,
        gpu_hours=hours * benchmark.gpus,
        price_usd_per_gpu_hour=price,
        usd=None if price is None else price * hours * benchmark.gpus,
    )


def token_count(text: str) -> int:
    """Return a number of tokens from text: 1T, 300B, 1.5T or a plain number."""
    unit = UNITS.get(text[-1:].upper(), 1)
    digits = text[:-1] if unit > 1 else text
    try:
        number = float(digits)
    except ValueError:
        number = math.nan
    if not 1 <= number * unit <= 1e18:
        raise RequestError(
            f"--tokens={text} is not a number of tokens",
            where="--tokens",
            why="the number may end with T (1e12), B (1e9) or M (1e6)",
            next_command="--tokens=1T",
        )
    return round(number * unit)
