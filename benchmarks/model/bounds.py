"""Computes the shortest time that a training step can take, part by part. For an estimate, see estimate.py.

Compute runs at the fastest known matmul rate of the device. Traffic runs at the achievable rates of the connections
and overlaps with compute as far as possible. A step takes at least as long as the slowest of these, plus
the parts that overlap with nothing: the pipeline bubble and the optimizer's pass over its memory. The bound is for
the busiest device: the last pipeline stage, which has the head, or a stage with more layers. It lists unknown rates.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.model.capacity import fullest_stages, trained_parameters
from benchmarks.model.flops import (
    FLOPS_PER_WEIGHT,
    adapter_parameter_count,
    attention_core_flops_per_token,
    causal_core_flops_per_token,
    embedding_parameters,
    linear_flops_per_token,
)
from benchmarks.model.ledger import FORWARD, recomputed_by_part
from benchmarks.model.traffic import LINKS, Traffic, tokens_per_step, traffic
from benchmarks.values import Benchmark, Storage, Value

ATTENTION_CORE = "attention core"  # the recomputed part that multiplies activations by activations, not by weights


class BoundPart(Value, frozen=True):
    """One part of a step. `exposed_seconds` is the part of its time that no other work overlaps."""

    name: str
    seconds: float | None  # None: unknown, for the reason in `unknown`
    exposed_seconds: float | None
    formula: str
    unknown: str = ""
    really_seconds: float | None = None  # only for traffic: the time of the framework's actual traffic


class Bound(Value, frozen=True):
    """The lower bound of a step's time."""

    seconds: float | None  # None: even the time of the matmuls is unknown
    compute_seconds: float | None  # the time of all matmuls
    parts: list[BoundPart]
    unknown: list[str]  # each part that `seconds` does not include, with the reason
    really_seconds: float | None = None  # the bound with the traffic that the framework really has

    def seconds_of(self, name: str) -> float:
        """Return the time of one part; 0 if the step does not have it, or if its time is unknown."""
        return sum(part.seconds or 0.0 for part in self.parts if part.name == name)

    def traffic_seconds(self) -> float | None:
        """Return the time of the framework's actual traffic, hidden or not; None if a rate is unknown."""
        return _total([part.really_seconds for part in self.traffic()])

    def traffic(self) -> list[BoundPart]:
        return [part for part in self.parts if f" {OVER} " in part.name]


OVER = "over"


class _Work(NamedTuple):
    name: str
    flops: float
    precision: str
    formula: str
    bubbles: bool = True  # whether every stage does this work (layers), so that it counts in the pipeline bubble


def bound(benchmark: Benchmark, storage: Storage) -> Bound:
    """Return every part of the step, and the shortest possible time that the parts add up to."""
    stages = [(layers, list(_work(benchmark, storage, layers, last))) for layers, last in fullest_stages(benchmark)]
    timed = [(layers, work, [_matmul_part(benchmark, one) for one in work]) for layers, work in stages]
    stage_layers, work, matmuls = max(timed, key=lambda stage: sum(part.seconds or 0.0 for part in stage[2]))
    compute = _total([part.seconds for part in matmuls])
    unsaid = []  # recomputation that the backend does not report: listed, and counted as 0
    if storage.recompute is None:
        why = "the backend does not report its recomputation"
        unsaid.append(_unknown("recompute", "matmuls of the backward pass", why))
    layers = _total([part.seconds for part, one in zip(matmuls, work, strict=True) if one.bubbles])
    parts = [
        *matmuls,
        *unsaid,
        *_bubble(benchmark, storage, stage_layers, layers),
        *_traffic_parts(benchmark, traffic(benchmark, storage), compute),
        _optimizer(benchmark, storage),
    ]
    exposed = [part.exposed_seconds for part in parts if part.exposed_seconds is not None]
    return Bound(
        seconds=sum(exposed) if compute is not None else None,
        compute_seconds=compute,
        parts=parts,
        unknown=[f"{part.name}: {part.unknown}" for part in parts if part.unknown],
        really_seconds=None if compute is None else _framework_traffic_bound(parts, compute),
    )


def _framework_traffic_bound(parts: Sequence[BoundPart], compute: float) -> float:
    """Return the bound with the framework's actual traffic instead of the least possible traffic."""
    links = {link: [part for part in parts if part.name.endswith(f" {OVER} {link}")] for link in LINKS}
    moved = [part for of_link in links.values() for part in of_link]
    rest = sum(part.exposed_seconds or 0.0 for part in parts if part not in moved)
    busiest = max(sum(part.really_seconds or 0.0 for part in of_link) for of_link in links.values())
    return rest + max(0.0, busiest - compute)


def _total(seconds: Sequence[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) if len(known) == len(seconds) else None


# --- matmuls ------------------------------------------------------------------------------------


def _work(benchmark: Benchmark, storage: Storage, layers: int, has_head: bool) -> Iterator[_Work]:
    """Yield the matmuls that one device executes in a step, if its pipeline stage has this number of layers."""
    model, share = benchmark.model, benchmark.parallelism
    linear = benchmark.dtype
    other = linear if linear == "fp32" else "bf16"  # with quantized types, attention and head stay in bf16
    passes, adapters = _passes(benchmark)
    in_layers = tokens_per_step(benchmark) / share.tensor * layers / model.layers
    heads = FLOPS_PER_WEIGHT * embedding_parameters(model) * (1 + model.mtp_modules)
    weights = passes / FLOPS_PER_WEIGHT * (linear_flops_per_token(model) - heads) + adapters
    active = "active weights" if model.experts else "weights"
    yield _Work("linear", weights * in_layers, linear, f"{passes} x {active} of the layers x tokens")
    # Plain attention also computes the half of the score matrix that the causal mask discards.
    square, words = (1.0, "the whole square") if storage.writes_attention_scores else (0.5, "causal")
    length = benchmark.batch.sequence_length
    core = causal_core_flops_per_token(model, length)
    if storage.writes_attention_scores:
        core = attention_core_flops_per_token(model, length)
    yield _Work("attention", core * in_layers, other, f"{12 * square:g} L a d s x tokens, {words}")
    head = passes * embedding_parameters(model) * (1 + model.mtp_modules) * tokens_per_step(benchmark) / share.tensor
    if storage.tables_on_every_stage:
        yield _Work("head", head / share.pipeline, other, f"{passes} V h x tokens", bubbles=False)
    elif has_head:
        yield _Work("head", head, other, f"{passes} V h x tokens, whole on one stage", bubbles=False)
    if storage.recompute is None:
        return
    convention = "recipe" if storage.writes_attention_scores else "causal"
    again = recomputed_by_part(model, benchmark.batch.sequence_length, storage.recompute, convention)
    core_again = again.pop(ATTENTION_CORE, 0.0)
    if again:
        words = f"{FORWARD} x weights of {', '.join(again)} x tokens"
        yield _Work("recompute", sum(again.values()) * in_layers, linear, words)
    if core_again:
        words = f"{4 * square:g} L a d s x tokens, forward only"
        yield _Work("recompute attention", core_again * in_layers, other, words)


def _passes(benchmark: Benchmark) -> tuple[int, float]:
    """Return the FLOPs per weight and token, and the FLOPs per token of adapters. Frozen weights have no gradient."""
    if benchmark.lora is None:
        return FLOPS_PER_WEIGHT, 0.0
    adapters = adapter_parameter_count(benchmark.model, benchmark.lora)
    return FLOPS_PER_WEIGHT - FORWARD, float(FLOPS_PER_WEIGHT * adapters)


def _matmul_part(benchmark: Benchmark, work: _Work) -> BoundPart:
    # A peak measured on this device, otherwise the known rate of its type.
    peak = benchmark.measured_peaks.get(work.precision) or benchmark.hardware.achievable.get(work.precision)
    if peak is None:
        why = f"no {work.precision} matmul rate for {benchmark.hardware.name} (python launch/peak.py measures it)"
        return _unknown(work.name, work.formula, why)
    seconds = work.flops / (peak.tflops * 1e12)
    formula = f"{work.formula} = {work.flops:.4g} FLOPs at {peak.tflops:g} TFLOP/s {work.precision}"
    return BoundPart(name=work.name, seconds=seconds, exposed_seconds=seconds, formula=formula)


def _unknown(name: str, formula: str, why: str) -> BoundPart:
    return BoundPart(name=name, seconds=None, exposed_seconds=None, formula=formula, unknown=why)


# --- parts that overlap with nothing ------------------------------------------------------------


def _bubble(benchmark: Benchmark, storage: Storage, stage_layers: int, layers: float | None) -> list[BoundPart]:
    """Return the idle time at the start and the end of a step, when only some stages have work.

    This is for the 1F1B schedule. `layers` is the compute time of the stage's layers in seconds.
    """
    share = benchmark.parallelism
    if share.pipeline == 1:
        return []
    batches = benchmark.batch.gradient_accumulation
    others = benchmark.model.layers / stage_layers - 1  # the number of other stages, in stages of this size
    formula = f"{others:.4g} / ({share.virtual_pipeline} x {batches}) of the layers"
    if layers is None:
        return [_unknown("bubble", formula, "it depends on the time of the matmuls, which is unknown")]
    if storage.gathers_layers:
        why = "the framework chooses the number of micro-batches"
        return [_unknown("bubble", formula, why)]
    seconds = layers * others / (share.virtual_pipeline * batches)
    return [BoundPart(name="bubble", seconds=seconds, exposed_seconds=seconds, formula=formula)]


def _optimizer(benchmark: Benchmark, storage: Storage) -> BoundPart:
    """Return the time to read the gradients, to read and write the optimizer's state, and to write the weights."""
    per_parameter = (
        storage.numbers.gradient_bytes + 2 * storage.numbers.optimizer_bytes + storage.numbers.weight_bytes
    )
    size = per_parameter * trained_parameters(benchmark, storage) / storage.optimizer_replicas
    formula = f"{per_parameter} bytes x trained parameters of a device"
    speed = connection_gb_s(benchmark, "memory")
    if speed is None:
        return _unknown("optimizer", formula, _no_rate(benchmark, "memory"))
    seconds = size / (speed * 1e9)
    formula = f"{formula} = {size / 1e9:.4g} GB at {speed:g} GB/s to memory"
    return BoundPart(name="optimizer", seconds=seconds, exposed_seconds=seconds, formula=formula)


# --- traffic ------------------------------------------------------------------------------------


def _traffic_parts(benchmark: Benchmark, moved: Sequence[Traffic], compute: float | None) -> list[BoundPart]:
    """Return one part for each axis and connection.

    Compute and the connections work at the same time. If the busiest connection takes longer than compute, the
    difference is exposed. It is divided among the axes on that connection in proportion to their traffic.
    """
    speeds = {link: connection_gb_s(benchmark, link) for link in LINKS}
    totals = {link: sum(_seconds(one, link, speeds[link]) or 0.0 for one in moved) for link in LINKS}
    busiest = max(LINKS, key=lambda link: totals[link])
    over = None if compute is None else max(0.0, totals[busiest] - compute)
    parts = []
    for one in moved:
        factor = one.actual_factor
        more = "" if factor == 1 else f"; the framework moves {factor:.3g} times this size"
        for link, size in one.bytes_by_link.items():
            if not size:
                continue
            name, seconds = f"{one.axis} {OVER} {link}", _seconds(one, link, speeds[link])
            if seconds is None:
                parts.append(_unknown(name, one.formula, _no_rate(benchmark, link)))
                continue
            share = over * seconds / totals[link] if over is not None and link == busiest else 0.0
            parts.append(
                BoundPart(
                    name=name,
                    seconds=seconds,
                    exposed_seconds=None if over is None else share,
                    formula=f"{one.formula} = {size / 1e9:.4g} GB at {speeds[link]:g} GB/s{more}",
                    really_seconds=factor * seconds,
                )
            )
    return parts


def _seconds(moved: Traffic, link: str, speed: float | None) -> float | None:
    return None if speed is None else moved.bytes_by_link[link] / (speed * 1e9)


def connection_gb_s(benchmark: Benchmark, name: str) -> float | None:
    """Return the achievable rate of a connection, otherwise its datasheet rate; None if neither is known."""
    for kind, rate in benchmark.hardware.rates.items():
        if kind == name:
            return rate.achievable_gb_s or rate.gb_s
    return None


def _no_rate(benchmark: Benchmark, name: str) -> str:
    return f"configs/hardware/{benchmark.hardware.name}.yml has no rate '{name}'"
