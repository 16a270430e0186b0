"""Rank the differences between the runs of two sides by how likely each is to change the step time. No I/O.

Each kind of difference has a weight. Kinds that change the arithmetic and communication of every step have the
highest weights, then kinds that affect the host. The weight is halved if a value also varies within a side, or if a
number changed in a direction that does not fit the step times. Weights rank causes, but are not probabilities.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from benchmarks import statistics
from benchmarks.compare.facts import facts_of, load_per_processor
from benchmarks.compare.runs import ComparedRun, Runs
from benchmarks.compare.values import Cause
from benchmarks.telemetry.gpu import THROTTLE_BITS, GpuTelemetry

DOUBT = 0.5
LEAST_EFFECT = 0.005  # share of the step time; a smaller difference in speed needs no cause
MOST_VALUES = 3

# kind of difference -> its name in the plural, its weight, and why it affects the speed
KINDS: dict[str, tuple[str, float, str]] = {
    "slowdown": ("slowdown on purpose", 130, "every step was slowed on purpose"),
    "request": ("request", 104, "a step does different work, or does it in a different way"),
    "setting": ("settings of the backend", 90, "it changes what each step computes or sends"),
    "profile for PGLE": ("profile for PGLE", 86, "it schedules computation and communication in every step"),
    "XLA flag": ("XLA flags", 84, "it changes how XLA compiles the step"),
    "device": ("devices", 82, "device models differ in speed"),
    "image": ("image or lock file", 76, "it holds every library that the step uses"),
    "argument": ("arguments", 74, "it configures the training"),
    "layout": ("layout reported by the framework", 72, "devices share the work differently"),
    "program": ("program of the step", 66, "a setting, an argument or code changed the compiled program"),
    "node": ("nodes", 60, "nodes differ in clocks, cooling and place in the network"),
    "machine": ("machines", 58, "a machine feeds data to its GPUs, or trains on its own CPU"),
    "version": ("versions", 45, "a package that training uses"),
    "environment": ("environment variables", 40, "a library may read it"),
    "Stepmark": ("version of Stepmark", 22, "it contains the programs that train and measure"),
}
# Names whose weight differs from the weight of their kind: kind, pattern of the name, weight, why it matters.
SPECIAL: tuple[tuple[str, str, float, str], ...] = (
    ("request", r"backend|engine", 112, "another framework"),
    ("request", r"data", 62, "the time to load data may differ, and the loss differs"),
    ("request", r"site", 55, "sites have different networks and settings"),
    ("request", r"window|steps", 48, "different steps are measured, and step times can drift"),
    (
        "version",
        r"jax|jaxlib|jax-cuda.*|libtpu|torch|triton|transformer[-_]engine.*|maxtext|nemo[-_]toolkit|nemo|megatron.*|"
        r"lightning|nccl|cuda|cudnn|cublas|nvidia-(nccl|cudnn|cublas|cuda).*|GPU driver|CUDA of the driver|flax|qwix|"
        r"aqtp",
        80,
        "it computes, compiles or communicates in every step",
    ),
    (
        "environment",
        r"(NCCL_|XLA_|NVTE_|CUDA_|CUBLAS_|CUDNN_|TORCH_|PYTORCH_|JAX_|UB_|OMP_|MKL_|MALLOC_|LD_PRELOAD|NEMO_).*",
        70,
        "the libraries below the framework read it",
    ),
)
OF_THE_REQUEST = ("request", "setting", "XLA flag")
# Each framework has its own names for these kinds, so they cannot be compared between frameworks.
OF_A_FRAMEWORK = ("setting", "argument", "version", "layout", "image", "XLA flag", "program")


class Measure(NamedTuple):
    """A number that is measured in each run, such as a clock or a temperature."""

    name: str
    unit: str
    least: float  # smaller differences are ignored; a fraction if `relative`, otherwise in `unit`
    relative: bool
    faster: int  # 1: a higher value makes a step faster; -1: it makes a step slower
    weight: float
    read: Callable[[ComparedRun], float | None]
    kind: str = "clock"


def _of_gpus(read: Callable[[GpuTelemetry], float | None]) -> Callable[[ComparedRun], float | None]:
    return lambda run: read(run.gpu) if run.gpu else None


def _throttled(reason: str) -> Measure:
    def share(gpu: GpuTelemetry) -> float | None:
        return None if gpu.throttled is None else 100 * gpu.throttled.get(reason, 0.0)

    return Measure(f"throttled: {reason.replace('_', ' ')}", "% of samples", 2, False, -1, 97, _of_gpus(share))


LOAD = "load"
LOAD_WEIGHT_ON_GPUS = 40.0  # a machine that trains on GPUs hardly notices other programs
MEASURES = (
    Measure("SM clock, median", "MHz", 0.005, True, 1, 99, _of_gpus(lambda gpu: gpu.sm_clock_mhz_median)),
    *map(_throttled, THROTTLE_BITS),
    Measure("power limit", "W", 0.01, True, 1, 95, _of_gpus(lambda gpu: gpu.power_limit_watts)),
    Measure(
        "SM clock of the slowest GPU", "MHz", 0.02, True, 1, 92,
        _of_gpus(lambda gpu: gpu.slowest.sm_clock_mhz if gpu.slowest else None),
    ),
    Measure("uncorrected ECC errors", "", 0.5, False, -1, 62, _of_gpus(lambda gpu: gpu.ecc_uncorrected)),
    Measure("PCIe replays", "", 0.5, False, -1, 61, _of_gpus(lambda gpu: gpu.pcie_replays)),
    Measure("highest temperature", "C", 5, False, -1, 46, _of_gpus(lambda gpu: gpu.temperature_c_max)),
    Measure("at the start, per processor", "", 0.25, False, -1, 88, load_per_processor, LOAD),
)  # fmt: skip


class Explanation(NamedTuple):
    causes: list[Cause]
    same: list[str]  # kinds that were compared and do not differ, each with its number of facts
    not_known: list[str]  # kinds that one side does not record, or that two frameworks do not share


def causes(a: Runs, b: Runs, slower: float | None) -> Explanation:
    """Return the ranked causes. `slower` is the logarithm of B's step time divided by A's; None: unknown."""
    found: list[Cause] = []
    same: list[str] = []
    not_known: list[str] = []
    own: list[str] = []  # kinds for which each framework has its own names
    sides = ([facts_of(run) for run in a], [facts_of(run) for run in b])
    one, other = (side[0]["request"] for side in sides)
    other_framework = any(one[name] != other[name] for name in ("backend", "engine"))
    for kind, (title, _, _) in KINDS.items():
        known = [[facts[kind] for facts in side if kind in facts] for side in sides]
        if not any(known):
            continue
        if not all(known):
            without = " and ".join(name for name, side in zip("AB", known, strict=True) if not side)
            not_known.append(f"{title}: not recorded for {without}")
        elif other_framework and kind in OF_A_FRAMEWORK:
            own.append(title)
        elif differences := list(_of_kind(kind, *known)):
            found += differences
        else:
            same.append(f"{title} ({len(known[0][0]) or 'none'})")
    if own:
        where = "not comparable between frameworks; see benchmark.json, plan.json and provenance.json of a run"
        not_known.append(f"{', '.join(own)}: {where}")
    found += _moved(a, b, slower)
    settings = {cause.name for cause in found if cause.kind == "setting"}
    # If an argument has the name of a setting, it only passes the setting on, so it is not a second cause.
    found = [cause for cause in found if cause.kind != "argument" or cause.name not in settings]
    found.sort(key=lambda cause: (-cause.weight, cause.kind, cause.name))
    ranked = [msgspec.structs.replace(cause, rank=rank) for rank, cause in enumerate(found, 1)]
    return Explanation(ranked, same, not_known)


def requested(causes: Sequence[Cause]) -> list[str]:
    """Return how the two requests differ, such as "dtype: bf16 -> fp8", without each model dimension."""
    return [
        f"{cause.name if cause.kind == 'request' else f'{cause.kind} {cause.name}'}: {cause.a or 'not set'} -> "
        f"{cause.b or 'not set'}"
        for cause in causes
        if cause.kind in OF_THE_REQUEST and not cause.name.startswith("model ")
    ]


def _cause(weight: float, kind: str, name: str, a: str | None, b: str | None, why: str) -> Cause:
    return Cause(rank=0, weight=weight, kind=kind, name=name, a=a, b=b, why=why)


def _of_kind(kind: str, a: Sequence[dict[str, str]], b: Sequence[dict[str, str]]) -> Iterator[Cause]:
    for name in dict.fromkeys(name for facts in (*a, *b) for name in facts):
        one, other = ([facts.get(name) for facts in side] for side in (a, b))
        if set(one) == set(other):
            continue
        special = (row[2:] for row in SPECIAL if row[0] == kind and re.fullmatch(row[1], name, re.IGNORECASE))
        weight, why = next(special, KINDS[kind][1:])
        if len(set(one)) > 1 or len(set(other)) > 1:
            weight, why = DOUBT * weight, f"{why}; but runs of the same side differ as well"
        yield _cause(weight, kind, name, _values(one), _values(other), why)


def _values(values: Sequence[str | None]) -> str | None:
    counts = Counter(values).most_common()
    if len(counts) == 1:
        return counts[0][0]
    texts = [f"{'not set' if value is None else value} ({count})" for value, count in counts]
    more = f" and {len(texts) - MOST_VALUES} more" if len(texts) > MOST_VALUES else ""
    return ", ".join(texts[:MOST_VALUES]) + more


def _moved(a: Runs, b: Runs, slower: float | None) -> Iterator[Cause]:
    """Yield a cause for each measure (clocks, power, errors, load) that differs between the sides."""
    on_cpu = all(run.benchmark.hardware.kind == "cpu" for run in (*a, *b))
    for measure in MEASURES:
        one, other = ([value for run in runs if (value := measure.read(run)) is not None] for runs in (a, b))
        weight = LOAD_WEIGHT_ON_GPUS if measure.kind == LOAD and not on_cpu else measure.weight
        if one and other and (cause := _moved_by(measure, weight, one, other, slower)):
            yield cause


def _moved_by(measure: Measure, weight: float, a: list[float], b: list[float], slower: float | None) -> Cause | None:
    one, other = (float(statistics.median(found) or 0.0) for found in (a, b))
    size = (other - one) / one if measure.relative and one else other - one
    if abs(size) < measure.least * (max(1.0, min(one, other)) if measure.kind == LOAD else 1.0):
        return None
    why = f"{'higher' if other > one else 'lower'} in B"
    if slower is None or abs(slower) < LEAST_EFFECT:
        weight, why = DOUBT * weight, f"{why}, but the step times hardly differ"
    else:
        fits = ((size > 0) == (measure.faster > 0)) == (slower < 0)
        step = f"a step that is {abs(math.expm1(slower)):.1%} {'slower' if slower > 0 else 'faster'}"
        weight, why = weight * (1 if fits else DOUBT), f"{why}, which {'fits' if fits else 'does not fit'} {step}"
    if min(len(a), len(b)) > 1 and max(a) >= min(b) and max(b) >= min(a):
        weight, why = DOUBT * weight, f"{why}; but runs of the same side differ as well"
    texts = [f"{value:.4g} {measure.unit}".strip() for value in (one, other)]
    return _cause(weight, measure.kind, measure.name, texts[0], texts[1], why)
