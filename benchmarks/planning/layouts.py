"""Every layout that a cluster, a model and a framework allow, ranked, each with what puts it before the next. Pure.

The global batch stays as it is, or layouts would not do the same work. What the framework takes is asked of the
backend, and of resolving, which refuses what cannot work; nothing of a framework is known here.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

import msgspec

from benchmarks.backend import Backend, RanksLayouts
from benchmarks.errors import RequestError
from benchmarks.planning.bounds import OVER, Bound, bound
from benchmarks.planning.calibration import TERMS, Calibration, Estimate, estimate, terms
from benchmarks.planning.capacity import fits, total_bytes
from benchmarks.planning.covered import Errors
from benchmarks.planning.read_once import ReadOnce
from benchmarks.rendering.report import bytes_text, seconds_text
from benchmarks.request.resolve import ConfigSource, Request, resolve
from benchmarks.values import Benchmark, Parallelism, Value

SHOWN_CAUSES = 3
MICRO_BATCHES = (1, 2, 4)
# Settings that say a batch: of the request, they give way to what a layout needs.
BATCH = ("micro_batch_size", "gradient_accumulation", "global_batch_size")

RankedBy = Literal["estimate", "traffic", "bound", "memory"]


class Candidate(NamedTuple):
    """One layout that works, with what it costs."""

    benchmark: Benchmark
    bytes_needed: float
    bound: Bound
    estimate: Estimate
    asked: bool  # the layout of the request itself

    def seconds(self, by: RankedBy) -> float | None:
        """A bound that ranks is one with the traffic that the framework really has."""
        return self.estimate.seconds if by == "estimate" else self.bound.really_seconds

    def parts(self, by: RankedBy) -> dict[str, float]:
        """Seconds, that add up to its time."""
        if by == "estimate":
            return _estimated_parts(self.benchmark, self.bound, self.estimate)
        return _bound_parts(self.bound)


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
    reason: str  # why it stands before the next; empty for the last
    settings: dict[str, str]


class Ranking(Value, frozen=True):
    """All layouts of a request that work and fit, the best first."""

    by: RankedBy
    layouts: list[RankedLayout]
    errors: Errors | None  # of the estimates, where it is by them
    tried: int
    refused: int  # by the model's sizes or by the framework
    too_large: int  # for a device's memory


def rank(request: Request, configs: ConfigSource, backend: Backend, calibration: Calibration) -> Ranking:
    """The layouts of what was asked for; its own is among them."""
    configs = ReadOnce(configs)
    asked = resolve(request, configs, backend)
    benchmarks = list(layouts(request, asked, configs, backend))
    working = [benchmark for benchmark in benchmarks if benchmark is not None]
    fitting = [benchmark for benchmark in working if fits(benchmark, backend.storage(benchmark))]
    found = [_candidate(benchmark, backend, calibration, asked) for benchmark in fitting]
    by = _ranked_by(found)
    ordered = sorted(found, key=lambda one: _place(one, by))
    pairs = zip_longest(ordered, ordered[1:])
    return Ranking(
        by=by,
        errors=ordered[0].estimate.errors if ordered and by == "estimate" else None,
        layouts=[_ranked(number, one, following, by) for number, (one, following) in enumerate(pairs, start=1)],
        tried=len(benchmarks),
        refused=len(benchmarks) - len(working),
        too_large=len(working) - len(fitting),
    )


def layouts(
    request: Request, asked: Benchmark, configs: ConfigSource, backend: Backend
) -> Iterator[Benchmark | None]:
    """Each layout and micro batch as a benchmark; None where the model's sizes or the framework refuse it."""
    if not isinstance(backend, RanksLayouts):
        return
    for share in shares(asked, asked.gpus):
        settings = backend.layout_settings_for(asked.engine, share, asked.gpus, asked.hardware)
        for micro in micro_batches(asked, share) if settings is not None else ():
            typed = settings_of(request, asked.global_batch_size, {**(settings or {}), "micro_batch_size": micro})
            try:
                benchmark = resolve(msgspec.structs.replace(request, settings=typed), configs, backend)
            except RequestError:
                yield None
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
    guess = estimate(benchmark, found, calibration)
    return Candidate(benchmark, total_bytes(benchmark, storage), found, guess, asked=alike(benchmark, asked))


def alike(one: Benchmark | RankedLayout, other: Benchmark) -> bool:
    """The same layout, worked through in the same steps."""
    return (one.parallelism, one.micro_batch_size) == (other.parallelism, other.micro_batch_size)


# --- the order, and why -------------------------------------------------------------------------


def _ranked_by(found: Sequence[Candidate]) -> RankedBy:
    """By one measure for all: estimates and bounds cannot be held against each other.

    An estimate that was fitted to one kind of layout has no say in which kind is better. What is known of that is
    what each one moves.
    """
    if found and all(one.estimate.seconds is not None for one in found):
        return "estimate" if all(one.estimate.tells_layouts_apart for one in found) else "traffic"
    return "bound" if found and all(one.bound.seconds is not None for one in found) else "memory"


def _place(one: Candidate, by: RankedBy) -> tuple[float, ...]:
    """Of layouts of the same time the one with less traffic, which can only show; then what was asked for, and then
    the smaller one."""
    traffic = _moved(one, by)
    if by == "memory":
        return (one.bytes_needed, traffic)
    return (_rounded(one.seconds(by) or 0.0), traffic, not one.asked, one.bytes_needed)


def _rounded(seconds: float, digits: int = 3) -> float:
    """What differs by less is the same."""
    return float(f"{seconds:.{digits}g}")


def _moved(one: Candidate, by: RankedBy) -> float:
    """Seconds of traffic. Where no run was in another kind of layout, some percent less are no reason for one."""
    return _rounded(one.bound.traffic_seconds(), digits=2 if by == "traffic" else 3)


def _ranked(number: int, one: Candidate, following: Candidate | None, by: RankedBy) -> RankedLayout:
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
        beyond=one.estimate.beyond,
        worst_percent=one.estimate.worst_percent,
        reason=_reason(one, following, by) if following else "",
        settings=one.benchmark.overrides,
    )


def _reason(one: Candidate, following: Candidate, by: RankedBy) -> str:
    mine, theirs = one.seconds(by), following.seconds(by)
    if by != "memory" and mine and theirs and _rounded(theirs) > _rounded(mine):
        return f"{theirs / mine - 1:.1%} faster than the next: " + ", ".join(_causes(one, following, by))
    traffic, more = one.bound.traffic_seconds(), following.bound.traffic_seconds()
    alike = "as fast as the next" if by != "memory" else "no speed is known"
    if by != "memory" and _moved(following, by) > _moved(one, by):
        return f"{alike}, and it moves less: {seconds_text(traffic)} of traffic instead of {seconds_text(more)}"
    less = following.bytes_needed - one.bytes_needed
    if one.asked and less <= 0:
        return f"{alike}, and it is what was asked for"
    if less > 0:
        return f"{alike}, with {bytes_text(less)} less memory"
    return f"{alike}, in nothing better or worse"


def _causes(one: Candidate, following: Candidate, by: RankedBy) -> Iterator[str]:
    """The parts that differ most, the largest first; those that speak for the next are said too."""
    mine, theirs = one.parts(by), following.parts(by)
    gains = {name: theirs.get(name, 0.0) - mine.get(name, 0.0) for name in {**mine, **theirs}}
    largest = sorted(gains, key=lambda name: -abs(gains[name]))[:SHOWN_CAUSES]
    whole = abs(sum(gains.values()))
    for name in largest:
        if abs(gains[name]) > whole / 100:
            yield f"{seconds_text(abs(gains[name]))} {'less' if gains[name] > 0 else 'more'} {name}"


def _bound_parts(found: Bound) -> dict[str, float]:
    shown = {part.name: part.exposed_seconds for part in found.parts if part.exposed_seconds}
    rest = {name: seconds for name, seconds in shown.items() if f" {OVER} " not in name}
    return {**rest, "traffic that shows": (found.really_seconds or 0.0) - sum(rest.values())}


def _estimated_parts(benchmark: Benchmark, found: Bound, guess: Estimate) -> dict[str, float]:
    """What the estimate adds up, its traffic by axis."""
    shares_of = dict(guess.shares)
    traffic = shares_of.pop("traffic")
    by_name = dict(zip(TERMS, terms(benchmark, found), strict=True))
    parts = {
        "matmuls": found.compute_seconds or 0.0,
        "bubble": found.seconds_of("bubble"),
        "optimizer": found.seconds_of("optimizer"),
        **{name.replace("_", " "): share * by_name[name] for name, share in shares_of.items()},
    }
    axes = {part.name.split()[0] for part in found.parts if f" {OVER} " in part.name}
    return {**parts, **{f"{axis} traffic": traffic * found.traffic_seconds(axis) for axis in sorted(axes)}}
