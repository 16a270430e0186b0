"""What a dry run of a suite shows: its cells, what they mean, and what a night would cost in runs."""

from collections.abc import Callable, Sequence

from benchmarks.errors import RequestError
from benchmarks.gate.rule import G3
from benchmarks.gate.suites import Cell, Watched
from benchmarks.gate.values import Suite
from benchmarks.rendering.columns import aligned
from benchmarks.request.resolve import Request
from benchmarks.sweeps.scaling import scale_of
from benchmarks.values import Benchmark
from launch.campaigns.nights.launcher import REPLACED


def plan_text(
    suite: Suite,
    cells: Sequence[Cell],
    watched: Sequence[Watched],
    understand: Callable[[Request], Benchmark],
    site: str,
    budget: int,
) -> str:
    """RequestError where a cell cannot work: the night itself would run the others."""
    rows = [(cell.name, _meaning(cell, understand)) for cell in cells]
    gated = ", ".join(one.metric.title for one in watched if one.gates)
    beside = ", ".join(one.metric.title for one in watched if not one.gates) or "nothing else"
    across = ", ".join(suite.baseline_across)
    return "\n".join(
        [
            f"suite {suite.name} at site {site}: {suite.title}",
            *aligned(rows),
            "",
            _cost(len(cells), budget),
            f"gates {gated}; watches {beside}",
            *([f"a change of {across} is what is tested, and starts no new baseline"] if across else []),
            "nothing was started (--dry_run)",
        ]
    )


def _cost(cells: int, budget: int) -> str:
    if not budget:
        return f"one run a cell, {cells} a night; no re-runs are allowed, so nothing can be confirmed"
    most = cells + min(budget, cells * G3.confirmations * (1 + REPLACED))
    return (
        f"one run a cell, and {G3.confirmations} more of each that is suspect, as far as {budget} go, which replace "
        f"those that fail too: {cells} to {most} runs a night"
    )


def _meaning(cell: Cell, understand: Callable[[Request], Benchmark]) -> str:
    try:
        benchmark = understand(cell.request)
    except RequestError as error:
        raise RequestError(
            f"cell {cell.name} cannot work: {error.what}",
            where=error.where,
            why=error.why,
            next_command=error.next_command,
        ) from None
    scale = scale_of(benchmark)
    nodes = f"{scale.nodes} node{'' if scale.nodes == 1 else 's'}"
    return (
        f"{scale.gpus} x {scale.hardware} on {nodes}, {benchmark.dtype}, {scale.layout}, "
        f"global batch {scale.global_batch_size}, {benchmark.steps} steps, window {benchmark.window}"
    )
