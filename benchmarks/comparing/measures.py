"""Numbers of the machines that each run has its own of, such as clocks: whether they fit a slower step. Pure."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.comparing.runs import ComparedRun
from benchmarks.measuring import statistics
from benchmarks.telemetry.gpu import THROTTLE_BITS, GpuTelemetry

SHOWN_EFFECT = 0.005  # of a step's time: less needs no cause
ENOUGH = 0.5  # of the effect: a relative difference so large may be its cause


class Measure(NamedTuple):
    kind: str
    name: str
    unit: str
    read: Callable[[ComparedRun], float | None]
    least: float  # a smaller difference is none; relative, or in the unit
    relative: bool
    faster: int  # 1: more of it is faster; -1: slower
    weight: float  # where it fits a slower or faster step
    else_weight: float
    of_it: float = 0.0  # a smaller share of the smaller value is no difference either


class Measured(NamedTuple):
    """A measure that differs."""

    measure: Measure
    a: str
    b: str
    score: float
    why: str


def _gpu(read: Callable[[GpuTelemetry], float | None]) -> Callable[[ComparedRun], float | None]:
    def of_run(run: ComparedRun) -> float | None:
        gpu = run.result.telemetry.gpu if run.result.telemetry else None
        return None if gpu is None else read(gpu)

    return of_run


def _throttled(reason: str) -> Callable[[GpuTelemetry], float | None]:
    return lambda gpu: None if gpu.throttled is None else 100 * gpu.throttled.get(reason, 0.0)


def _load(run: ComparedRun) -> float | None:
    """Of the nodes of a queue's run, of this machine else; before the run itself loads it."""
    machine = run.provenance.get("machine")
    machine = machine if isinstance(machine, dict) else {}
    averages, cpus = machine.get("load_average"), machine.get("cpus_usable") or machine.get("cpus")
    if run.benchmark.site.kind != "local":
        cpus = max((node.cpus for node in run.nodes if node.cpus), default=None)
        averages = None if run.load is None else [run.load]
    return averages[0] / cpus if averages and cpus else None


def measures(on_cpu: bool) -> list[Measure]:
    """A machine that trains on its processors feels each other program; one with GPUs hardly."""
    load_weights = (88.0, 20.0) if on_cpu else (40.0, 10.0)
    return [
        Measure("clock", "SM clock, median", "MHz", _gpu(lambda g: g.sm_clock_mhz_median), 0.005, True, 1, 99, 50),
        Measure(
            "clock", "SM clock of the slowest GPU", "MHz",
            _gpu(lambda g: g.slowest.sm_clock_mhz if g.slowest else None), 0.02, True, 1, 92, 45,
        ),
        Measure("clock", "power limit", "W", _gpu(lambda g: g.power_limit_watts), 0.01, True, 1, 95, 55),
        *(
            Measure("clock", f"throttled: {name.replace('_', ' ')}", "% of samples", _gpu(_throttled(name)), 2.0,
                    False, -1, 97, 45)
            for name in THROTTLE_BITS
        ),
        Measure("clock", "highest temperature", "C", _gpu(lambda g: g.temperature_c_max), 5.0, False, -1, 46, 18),
        Measure("clock", "uncorrected ECC errors", "", _gpu(lambda g: g.ecc_uncorrected), 0.5, False, -1, 62, 35),
        Measure("clock", "PCIe replays", "", _gpu(lambda g: g.pcie_replays), 0.5, False, -1, 61, 33),
        Measure("load", "at the start, a processor", "", _load, 0.25, False, -1, *load_weights, 0.25),
    ]  # fmt: skip


def differing(
    measure: Measure, a: Sequence[ComparedRun], b: Sequence[ComparedRun], slower: float | None
) -> Measured | bool | None:
    """None: a side does not know it. False: it does not differ."""
    sides = [[value for run in runs if (value := measure.read(run)) is not None] for runs in (a, b)]
    if not sides[0] or not sides[1]:
        return None
    one, other = (float(statistics.median(values) or 0.0) for values in sides)
    change = other - one
    relative = change / one if one else None
    size = relative if measure.relative and relative is not None else change
    if abs(size) < measure.least or abs(change) < measure.of_it * min(abs(one), abs(other)):
        return False
    weight, why = _fit(measure, size, slower)
    if min(map(len, sides)) > 1 and not (max(sides[0]) < min(sides[1]) or max(sides[1]) < min(sides[0])):
        weight, why = weight * 0.3, f"{why}; but it varies within the sides as much"
    text = (
        f"{abs(relative):.1%}" if relative is not None and measure.relative else f"{abs(change):.3g} {measure.unit}"
    )
    direction = "higher" if change > 0 else "lower"
    return Measured(measure, _text(measure, one), _text(measure, other), weight, f"{text.strip()} {direction} {why}")


def _fit(measure: Measure, size: float, slower: float | None) -> tuple[float, str]:
    """Whether a change of such a sign and size goes with what the steps did."""
    if slower is None or abs(slower) < SHOWN_EFFECT:
        return measure.else_weight, "beside no difference in speed to speak of"
    beside = f"beside a step {abs(math.expm1(slower)):.1%} {'slower' if slower > 0 else 'faster'}"
    should_be_faster = (size > 0) == (measure.faster > 0)
    if should_be_faster == (slower > 0):
        return measure.else_weight * 0.3, f"{beside}: it points the other way"
    if measure.relative and abs(size) < ENOUGH * abs(slower):
        return (measure.weight + measure.else_weight) / 2, f"{beside}: it fits, and explains a part at most"
    return measure.weight, f"{beside}: it fits"


def _text(measure: Measure, value: float) -> str:
    return f"{value:.4g} {measure.unit}".strip()
