"""--until: what may be typed, which runs cannot have it, and how a worker is told. Pure.

When such a run ends is in stopping.py, what its result says of it in stopped.py.
"""

import re
from collections.abc import Iterator

from benchmarks.backend import Backend
from benchmarks.early_stop import stopping
from benchmarks.errors import RequestError
from benchmarks.measuring.window import STEADY
from benchmarks.values import Benchmark, Until

FLAG = "--until"
EXAMPLE = f"{FLAG}=ci:0.5%"
LOWEST_PERCENT = 0.05  # below the noise of the quietest machines, no run of some steps gets there
HIGHEST_PERCENT = 10.0
AT_LEAST = 15  # counted steps: of fewer, the interval itself is not known well


def parse(text: str | None) -> Until | None:
    """ci:0.5% -> the half-width of the median's interval at which a run may end."""
    if text is None:
        return None
    match = re.fullmatch(r"ci:([0-9]{1,3}(?:\.[0-9]{1,6})?)%", text)
    if match is None:
        raise RequestError(
            f"{FLAG}={text}: ci:NUMBER% is expected",
            where=FLAG,
            why="a run may end as soon as its median step is known to within so many percent (95% interval)",
            next_command=EXAMPLE,
        )
    percent = float(match[1])
    if not LOWEST_PERCENT <= percent <= HIGHEST_PERCENT:
        raise RequestError(
            f"{FLAG}={text}: it must be from {LOWEST_PERCENT:g}% to {HIGHEST_PERCENT:g}%",
            where=FLAG,
            why="a median that is known less well says nothing, and one much better than that takes far more steps",
            next_command=EXAMPLE,
        )
    return Until(half_width=percent / 100, at_least=AT_LEAST)


def fewest_steps(until: Until, disturbed: int = 0) -> int:
    """Of so many, one can be spared: the first compiles, the rule looks some times, and the last are announced.

    `disturbed` steps after the first do not count.
    """
    return 1 + disturbed + until.at_least + (stopping.LOOKS - 1) + stopping.LONGEST_LEAD + 1


def option(benchmark: Benchmark) -> list[str]:
    """What the worker of the measured phase is told."""
    if benchmark.until is None:
        return []
    asked = stopping.Until(benchmark.until.half_width, benchmark.until.at_least, benchmark.steps)
    return [f"{FLAG}={asked.text()}"]


# --- what cannot have it --------------------------------------------------------------------------


def refuse_until(benchmark: Benchmark, backend: Backend) -> None:
    """Where the end of a run is not its own to choose."""
    if benchmark.until is not None:
        for refusal in _refusals(benchmark, backend):
            raise refusal


def _refusals(benchmark: Benchmark, backend: Backend) -> Iterator[RequestError]:
    if benchmark.window != STEADY:
        yield RequestError(
            f"{FLAG} goes with window {STEADY} only, not with {benchmark.window}",
            where=f"{FLAG} --window={benchmark.window}",
            why="a recipe's own rule asks for certain steps, and a run that ends early may not have them",
            next_command=f"--window={STEADY}, or leave {FLAG} out",
        )
    if benchmark.profile != "none":
        yield RequestError(
            f"{FLAG} does not go with --profile={benchmark.profile}",
            where=f"{FLAG} --profile",
            why="the figures of a profiled run are never compared, and it might end before the steps to be recorded",
            next_command=f"--profile=none, or leave {FLAG} out",
        )
    if benchmark.dtype in benchmark.hardware.emulated:
        yield RequestError(
            f"{FLAG} has nothing to know of {benchmark.dtype} on {benchmark.hardware.name}",
            where=f"{FLAG} --dtype={benchmark.dtype} --hardware={benchmark.hardware.name}",
            why=f"{benchmark.dtype} is emulated there, and the result claims no speed",
            next_command=f"leave {FLAG} out",
        )
    yield from too_few_steps(benchmark)
    phases = [phase for phase in backend.plan(benchmark).phases if phase.writes_steps]
    if not any(word.startswith(f"{FLAG}=") for word in phases[-1].command):
        yield RequestError(
            f"{backend.title} with engine {benchmark.engine} has no {FLAG}",
            where=f"{FLAG} --backend={backend.name} --engine={benchmark.engine}",
            why="its program runs all the steps it is told to",
            next_command=f"leave {FLAG} out",
        )


def too_few_steps(benchmark: Benchmark, disturbed: int = 0) -> Iterator[RequestError]:
    """`disturbed` is how many steps after the first do not count: the backend knows that of its way of PGLE."""
    until = benchmark.until
    if until is None or benchmark.steps >= fewest_steps(until, disturbed):
        return
    beside = f" beside {disturbed} disturbed ones" if disturbed else ""
    yield RequestError(
        f"{FLAG} could not end a run of {benchmark.steps} steps early",
        where=f"{FLAG} --steps={benchmark.steps}",
        why=f"it counts {until.at_least} steps{beside}, looks {stopping.LOOKS} times, and announces the end",
        next_command=f"--steps={fewest_steps(until, disturbed)} or more (the recipes have 50)",
    )


def refuse_in_gate(until: Until | str | None, gate: str) -> None:
    """`gate` is what would compare the run with others, such as "an A/B comparison" or "a nightly suite"."""
    if until is None:
        return
    raise RequestError(
        f"{FLAG} has no place in {gate}",
        where=FLAG,
        why="a run of another length samples another part of the time in which a machine settles: it differs by that",
        next_command=f"leave {FLAG} out: every run then has the same steps",
    )
