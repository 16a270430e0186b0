"""Every layout that a cluster, a model and a framework allow, ranked. Pure.

The global batch stays as it is, or layouts would not do the same work. What the framework takes is asked of the
backend, and of resolving, which refuses what cannot work; nothing of a framework is known here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from benchmarks.backend import Backend, RanksLayouts
from benchmarks.errors import RequestError
from benchmarks.planning.bounds import Bound, bound
from benchmarks.planning.calibration import BATCH, Calibration, Estimate, estimate_across
from benchmarks.planning.capacity import fits, total_bytes, usable_bytes
from benchmarks.planning.covered import LayoutsApart, traits_of
from benchmarks.request.resolve import ConfigSource, Request, resolve
from benchmarks.values import Benchmark, Parallelism, Value

MICRO_BATCHES = (1, 2, 4)

RankedBy = Literal["estimate", "bound", "memory"]


class Candidate(NamedTuple):
    """One layout that works, with what it costs."""

    benchmark: Benchmark
    bytes_needed: float
    bound: Bound
    estimate: Estimate
    asked: bool  # the layout of the request itself
    tight: str  # in what it leaves less memory free than published runs of its framework; empty: it does not

    @property
    def proven(self) -> bool:
        """As near to published runs as rows are that were left out."""
        return self.estimate.errors is not None and not self.tight

    def seconds(self, by: RankedBy) -> float | None:
        """A bound that ranks is one with the traffic that the framework really has."""
        return self.estimate.seconds if by == "estimate" else self.bound.really_seconds


class RankedLayout(Value, frozen=True):
    """A layout in its place."""

    rank: int
    layout: str
    parallelism: Parallelism
    micro_batch_size: int
    gradient_accumulation: int
    bytes_needed: float
    bound_seconds: float | None
    really_seconds: float | None  # the bound, with the traffic that the framework really has
    estimate_seconds: float | None
    beyond: list[str]  # in what the estimate goes beyond the runs it was fitted to
    worst_percent: float | None  # how far off the estimate may be; None: not known
    tied: bool  # with the first: closer than the model is known to tell layouts apart
    traffic_seconds: float  # over all connections, hidden or not
    settings: dict[str, str]


class Ranking(Value, frozen=True):
    """All layouts of a request that work and fit, the best first."""

    by: RankedBy
    layouts: list[RankedLayout]
    apart: LayoutsApart | None  # how far the model is off between two layouts; None: not known, or not by it
    tried: int
    refused: int  # by the model's sizes or by the framework
    too_large: int  # for a device's memory


def rank(request: Request, configs: ConfigSource, backend: Backend, calibration: Calibration) -> Ranking:
    """The layouts of what was asked for; its own is among them."""
    asked = resolve(request, configs, backend)
    tried = list(layouts(request, asked, configs, backend))
    working = [benchmark for benchmark in tried if isinstance(benchmark, Benchmark)]
    fitting = [benchmark for benchmark in working if fits(benchmark, backend.storage(benchmark))]
    found = [_candidate(benchmark, backend, calibration, asked) for benchmark in fitting]
    by = _ranked_by(found)
    ordered = sorted(found, key=lambda one: _place(one, by))
    apart = calibration.fit.layouts_apart if calibration.fit and by == "estimate" else None
    if by == "estimate":  # of an error that is not known nobody can say that it is smaller than a difference
        ordered.sort(key=lambda one: not one.proven)
    tied = _tied(ordered, apart)
    return Ranking(
        by=by,
        apart=apart,
        layouts=[_ranked(number, one, tied=number <= tied) for number, one in enumerate(ordered, start=1)],
        tried=len(tried),
        refused=len(tried) - len(working),
        too_large=len(working) - len(fitting),
    )


def layouts(
    request: Request, asked: Benchmark, configs: ConfigSource, backend: Backend
) -> Iterator[Benchmark | RequestError | None]:
    """Each layout and micro batch as a benchmark, or why not; None where the framework makes another layout of it."""
    if not isinstance(backend, RanksLayouts):
        return
    for share in shares(asked, asked.gpus):
        settings = backend.layout_settings_for(asked.engine, share, asked.gpus, asked.hardware)
        for micro in micro_batches(asked, share) if settings is not None else ():
            typed = settings_of(request, asked.global_batch_size, {**(settings or {}), "micro_batch_size": micro})
            try:
                benchmark = resolve(msgspec.structs.replace(request, settings=typed), configs, backend)
            except RequestError as error:
                yield error
            else:
                yield benchmark if benchmark.parallelism == share else None


# --- which there are ----------------------------------------------------------------------------


def shares(asked: Benchmark, gpus: int) -> Iterator[Parallelism]:
    """Every way to share so many devices that the model's sizes allow."""
    model = asked.model
    for tensor in _divisors(gpus):
        if model.attention_heads % tensor or model.query_groups % tensor:
            continue
        for pipeline in _divisors(gpus // tensor):
            if model.layers % pipeline:
                continue
            for context in _divisors(gpus // tensor // pipeline):
                if asked.sequence_length % context:
                    continue
                replicas = gpus // tensor // pipeline // context
                for data in _divisors(replicas):
                    for virtual in _divisors(model.layers // pipeline) if pipeline > 1 else [1]:
                        yield Parallelism(
                            tensor=tensor,
                            pipeline=pipeline,
                            context=context,
                            data=data,
                            fsdp=replicas // data,
                            virtual_pipeline=virtual,
                        )


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def micro_batches(asked: Benchmark, share: Parallelism) -> list[int]:
    """Batches of a micro-step that divide what a replica gets of the global batch."""
    sequences, rest = divmod(asked.global_batch_size, share.data * share.fsdp)
    if rest:
        return []
    wanted = {asked.micro_batch_size, *MICRO_BATCHES}
    if asked.gradient_accumulation == 1:
        wanted.add(sequences)  # as the request has it: a whole batch at once
    return sorted(micro for micro in wanted if sequences % micro == 0)


def settings_of(request: Request, global_batch_size: int, layout: Mapping[str, object]) -> dict[str, str]:
    kept = {name: text for name, text in request.settings.items() if name not in BATCH}
    made = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in layout.items()}
    return {**kept, **made, "global_batch_size": str(global_batch_size)}


def _candidate(benchmark: Benchmark, backend: Backend, calibration: Calibration, asked: Benchmark) -> Candidate:
    storage = backend.storage(benchmark)
    found = bound(benchmark, storage)
    guess = estimate_across(benchmark, found, calibration, by_model=True)
    size = total_bytes(benchmark, storage)
    tight = _tight(benchmark, size, usable_bytes(benchmark, storage), calibration)
    return Candidate(benchmark, size, found, guess, asked=alike(benchmark, asked), tight=tight)


def _tight(benchmark: Benchmark, size: float, usable: float | None, calibration: Calibration) -> str:
    kept, framework = calibration.fit, traits_of(benchmark).framework
    most = kept.covered.most_memory_percent.get(framework) if kept else None
    if most is None or not usable or 100 * size / usable <= most:
        return ""
    return f"{100 * size / usable:.0f}% of the usable memory: rows need {most:.0f}% at most"


def alike(one: Benchmark | RankedLayout, other: Benchmark) -> bool:
    """The same layout, worked through in the same steps."""
    return (one.parallelism, one.micro_batch_size) == (other.parallelism, other.micro_batch_size)


# --- the order ----------------------------------------------------------------------------------


def _ranked_by(found: Sequence[Candidate]) -> RankedBy:
    """By one measure for all: estimates and bounds cannot be held against each other."""
    if found and all(one.estimate.seconds is not None for one in found):
        return "estimate"
    return "bound" if found and all(one.bound.seconds is not None for one in found) else "memory"


def _tied(ordered: Sequence[Candidate], apart: LayoutsApart | None) -> int:
    """How many the model cannot tell from the first."""
    known = [one for one in ordered if one.proven]
    if not known or apart is None:
        return 0
    limit = (known[0].estimate.seconds or 0.0) * (1 + apart.worst / 100)
    return sum((one.estimate.seconds or 0.0) <= limit for one in known)


def _place(one: Candidate, by: RankedBy) -> tuple[float, ...]:
    """Of layouts of the same time the one with less traffic, which can only show; then what was asked for, and then
    the smaller one."""
    traffic = _rounded(one.bound.traffic_seconds())
    if by == "memory":
        return (one.bytes_needed, traffic)
    return (_rounded(one.seconds(by) or 0.0), traffic, not one.asked, one.bytes_needed)


def _rounded(seconds: float, digits: int = 3) -> float:
    """What differs by less is the same."""
    return float(f"{seconds:.{digits}g}")


def _ranked(number: int, one: Candidate, *, tied: bool) -> RankedLayout:
    return RankedLayout(
        rank=number,
        layout=one.benchmark.parallelism.short(),
        parallelism=one.benchmark.parallelism,
        micro_batch_size=one.benchmark.micro_batch_size,
        gradient_accumulation=one.benchmark.gradient_accumulation,
        bytes_needed=one.bytes_needed,
        bound_seconds=one.bound.seconds,
        really_seconds=one.bound.really_seconds,
        estimate_seconds=one.estimate.seconds,
        beyond=[*one.estimate.beyond, *([one.tight] if one.tight else [])],
        worst_percent=one.estimate.worst_percent if one.proven else None,
        tied=tied,
        traffic_seconds=one.bound.traffic_seconds(),
        settings=one.benchmark.overrides,
    )
