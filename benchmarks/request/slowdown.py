"""--inject_slowdown: which runs may be slowed on purpose, and how a worker is told. Pure.

Such a run is there to try what compares runs: it has to be called a regression. How a worker slows its steps is in
worker_kit.py.
"""

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
    if not benchmark.inject_slowdown:
        return
    asked, leave_out = f"{FLAG}={benchmark.inject_slowdown:g}", f"leave {FLAG} out"
    if not 0 <= benchmark.inject_slowdown <= MOST:  # nor is what is no number
        why = "it is the part of its own time by which every step is made longer: 0.5 for half as much again"
        raise RequestError(f"{asked}: it must be from 0 to {MOST:g}", where=FLAG, why=why, next_command=EXAMPLE)
    for flag, value, off, why in (
        ("--profile", benchmark.profile, "none", "the figures of a profiled run are never compared"),
        ("--pgle", benchmark.pgle, "off", "a slowed step hides what PGLE gains"),
    ):
        if value != off:
            what, typed = f"{FLAG} does not go with {flag}={value}", f"{asked} {flag}={value}"
            raise RequestError(what, where=typed, why=why, next_command=f"leave {FLAG} or {flag} out")
    measured = [phase for phase in backend.plan(benchmark).phases if phase.writes_steps][-1]
    if not any(word.startswith(f"{FLAG}=") for word in measured.command):
        raise RequestError(
            f"{backend.title} with engine {benchmark.engine} has no {FLAG}",
            where=f"{asked} --backend={backend.name} --engine={benchmark.engine}",
            why="nothing of ours runs inside its program that could make a step longer",
            next_command=leave_out,
        )
