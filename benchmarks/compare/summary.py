"""What the two sides are called, and the first sentence of a comparison. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.compare.runs import Runs
from benchmarks.compare.text import value_text
from benchmarks.compare.values import Difference
from benchmarks.rendering.columns import percent_text, plural
from benchmarks.values import Benchmark

FRAMEWORKS = {"maxtext": "MaxText", "nemo": "NeMo", "bridge": "Megatron Bridge"}  # others by their engine's name


class Names(NamedTuple):
    a: str
    b: str
    work: str = ""  # what both sides train, and on what: "for MaxText llama2_70b on 64 H100"


def _devices(benchmark: Benchmark) -> str:
    if benchmark.hardware.kind == "cpu":
        return f"on {plural(benchmark.gpus, 'CPU device')}"
    return f"on {benchmark.gpus} {benchmark.hardware.name.upper().replace('_', ' ')}"


# What names a side, in the order in which it is said.
WORDS: dict[str, Callable[[Benchmark], str]] = {
    "framework": lambda benchmark: FRAMEWORKS.get(benchmark.engine, benchmark.engine),
    "model": lambda benchmark: benchmark.model.name,
    "task": lambda benchmark: benchmark.task,
    "dtype": lambda benchmark: benchmark.dtype,
    "PGLE": lambda benchmark: f"pgle={benchmark.pgle}",
    "slowdown": lambda benchmark: f"slowed by {benchmark.inject_slowdown:.0%}",
    "devices": _devices,
}


def names_of(a: Runs, b: Runs, typed: tuple[str, str]) -> Names:
    """By the tags that were typed, or by what differs, or by the other conditions that were typed."""
    words = {name: (word(a[0].benchmark), word(b[0].benchmark)) for name, word in WORDS.items()}
    same = {name: first for name, (first, second) in words.items() if first == second}
    work = " ".join(same[name] for name in ("framework", "model", "devices") if name in same)
    work = f"for {work}".replace("for on ", "on ") if work else ""
    typed_a, typed_b = (text.split(",") for text in typed)
    own_a, own_b = (
        [word for word in own if word not in other] for own, other in ((typed_a, typed_b), (typed_b, typed_a))
    )
    if all(len(own) == 1 and own[0].startswith("tag=") for own in (own_a, own_b)):
        return Names(own_a[0].removeprefix("tag="), own_b[0].removeprefix("tag="), work)
    if differing := [pair for name, pair in words.items() if name not in same]:
        first, second = (" ".join(column).removeprefix("on ") for column in zip(*differing, strict=True))
        return Names(first, second, work)
    if all(own and all(set(word) & set("=<>") for word in own) for own in (own_a, own_b)):
        return Names(",".join(own_a), ",".join(own_b), work)
    first, second = (side[0].short + (f" and {len(side) - 1} more" if len(side) > 1 else "") for side in (a, b))
    return Names(first, second, work)


def sentence(speed: Difference | None, names: Names, runs: tuple[int, int]) -> str:
    """The verdict, both values, and how many runs they are of; empty if no metric of speed can be compared."""
    if speed is None or speed.percent is None or speed.a is None or speed.b is None:
        return ""
    unit = {"s": " per step", "%": f" {speed.name}"}.get(speed.unit, f" {speed.name}")
    a, b = (value_text(figure.value, speed.unit) for figure in (speed.a, speed.b))
    size = f"{percent_text(abs(speed.percent), '.3g')} {'more' if speed.percent > 0 else 'less'}"
    counts = f"{runs[1]} and {plural(runs[0], 'run')}" if runs[0] != runs[1] else f"{plural(runs[0], 'run')} each"
    work = f", {names.work}" if names.work else ""
    interval = ""
    if speed.low is not None and speed.high is not None:
        interval = f", 95% interval {speed.low:+.2f}% to {speed.high:+.2f}%"
    return (
        f"{speed.verdict}: {names.b} {'takes' if speed.unit == 's' else 'reaches'} {b}{unit}, {size} than {names.a} "
        f"({a}){work}; {counts}{interval}"
    )
