"""--inject_slowdown: which runs may be slowed on purpose, and how a worker is told. Pure.

Such a run is there to try what compares runs: it has to be called a regression. How a worker slows its steps is in
worker_kit.py.
"""

from collections.abc import Iterator

from benchmarks.backend import Backend
from benchmarks.errors import RequestError
from benchmarks.values import Benchmark

FLAG = "--inject_slowdown"
EXAMPLE = f"{FLAG}=0.5"
MOST = 10.0  # eleven times as long: nobody needs more to be seen


def option(benchmark: Benchmark) -> list[str]:
    """What the worker of the measured phase is told; nothing where no step is slowed."""
    return [f"{FLAG}={benchmark.inject_slowdown:g}"] if benchmark.inject_slowdown else []


def refuse_slowdown(benchmark: Benchmark, backend: Backend) -> None:
    """After all else that is refused: it asks the backend for its plan."""
    for refusal in _refusals(benchmark, backend) if benchmark.inject_slowdown else ():
        raise refusal


def _refusals(benchmark: Benchmark, backend: Backend) -> Iterator[RequestError]:
    asked = f"{FLAG}={benchmark.inject_slowdown:g}"
    if not 0 <= benchmark.inject_slowdown <= MOST:  # nor is what is no number
        yield RequestError(
            f"{asked}: it must be from 0 to {MOST:g}",
            where=FLAG,
            why="it is the part of its own time by which every step is made longer: 0.5 for half as much again",
            next_command=EXAMPLE,
        )
    yield from _beside(benchmark, asked)
    phases = [phase for phase in backend.plan(benchmark).phases if phase.writes_steps]
    if not any(word.startswith(f"{FLAG}=") for word in phases[-1].command):
        yield RequestError(
            f"{backend.title} with engine {benchmark.engine} has no {FLAG}",
            where=f"{asked} --backend={backend.name} --engine={benchmark.engine}",
            why="nothing of ours runs inside its program that could make a step longer",
            next_command=f"leave {FLAG} out",
        )


def _beside(benchmark: Benchmark, asked: str) -> Iterator[RequestError]:
    """What a slowed run would say nothing true about."""
    others = (
        (
            benchmark.profile != "none",
            f"--profile={benchmark.profile}",
            "--profile",
            "the figures of a profiled run are never compared, so no gate would look at them",
        ),
        (
            benchmark.pgle != "off",
            f"--pgle={benchmark.pgle}",
            "--pgle",
            "a slowed step hides what PGLE gains, and PGLE's own profile would hold the waiting",
        ),
    )
    for there, typed, flag, why in others:
        if there:
            yield RequestError(
                f"{FLAG} does not go with {typed}",
                where=f"{asked} {typed}",
                why=why,
                next_command=f"leave {FLAG} or {flag} out",
            )
