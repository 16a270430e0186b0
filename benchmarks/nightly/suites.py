"""Expand a suite into its cells, each a request with a stable name, and define the metrics that it may watch. No I/O.

The name of a cell identifies its history. The name depends only on the cell's own request, so it stays the same when
the suite gets another cell. If a name comes to mean another benchmark, series.py detects this from the runs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.errors import RequestError, UnknownName, nearest
from benchmarks.nightly.rule import CONFIRMATIONS
from benchmarks.nightly.values import Matrix, Metric, Suite
from benchmarks.request.resolve import LISTED, NUMBERS, Request, requests_of
from benchmarks.runs.finished_run import FinishedRun

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
SILENT = (("task", "pretrain"), ("pgle", "off"))  # values that the name of a cell omits, because they are defaults

SECONDS = "seconds_per_step"
EXCESS = "excess"
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name=SECONDS, title="seconds/step", unit="s", direction="lower"),
        Metric(name="tokens_per_second_per_gpu", title="tokens/s per GPU", unit="tokens/s", direction="higher"),
        Metric(name=EXCESS, title="excess", unit="ratio", direction="lower"),
        Metric(name="last_loss", title="last loss", unit="nats", direction="same"),
        Metric(name="memory_bytes", title="memory", unit="bytes", direction="lower"),
    )
}
# If a whole night is slow, these metrics of the control cell change in the same proportion.
CONTROLLED = (SECONDS, "tokens_per_second_per_gpu")
USUAL = {SECONDS: "gate", EXCESS: "watch"}


class Cell(NamedTuple):
    """One benchmark of a suite."""

    name: str
    title: str
    request: Request
    is_control: bool = False


class WatchedMetric(NamedTuple):
    metric: Metric
    gates: bool


def value_of(entry: FinishedRun, metric: Metric) -> float | None:
    """Return a run's value of a metric, or None if it is not above 0. The excess is judged as mean / median."""
    value: float | None = getattr(entry.metrics, metric.name)
    if value is not None and metric.name == EXCESS:
        value += 1
    return value if value is not None and 0 < value < float("inf") else None


def watched(suite: Suite) -> list[WatchedMetric]:
    """Return the metrics that a suite judges, first those that decide the exit code."""
    for name in suite.metrics:
        if name not in METRICS:
            raise _refusal(suite, "metrics", f"watches an unknown metric '{name}': {nearest(name, METRICS)}")
    asked = {**USUAL, **suite.metrics}
    found = [WatchedMetric(METRICS[name], how == "gate") for name, how in asked.items() if how != "none"]
    if not any(one.gates for one in found):
        why = f"only a metric that gates can find a regression; add `metrics: {{{SECONDS}: gate}}`"
        raise _refusal(suite, "metrics", "has no metric that gates", why)
    return sorted(found, key=lambda one: not one.gates)


def cells(suite: Suite, site: str, slowdown: float = 0.0) -> list[Cell]:
    """Return every cell of a suite at a site, in order. Raise RequestError if the suite is not valid."""
    refuse_budget(suite.rerun_budget, f"{file_of(suite)}: rerun_budget")
    every = [cell for block in suite.matrix for cell in _cells_of(suite, block, site, slowdown)]
    for rule in suite.exclude:
        if not any(_matches(cell.request, rule) for cell in every):  # a mistyped rule would silently exclude nothing
            raise _refusal(suite, "exclude", f"excludes a cell that does not exist: {dict(rule)}")
    found = [cell for cell in every if not any(_matches(cell.request, rule) for rule in suite.exclude)]
    if not found:
        raise _refusal(suite, "exclude", "excludes every cell")
    names = [cell.name for cell in found]
    for name in names:
        if names.count(name) > 1:
            why = "the name of a cell comes from its lists; add `label: WORD` to one of the blocks"
            raise _refusal(suite, "matrix", f"has two cells called {name}", why)
    if suite.control is None:
        return found
    if suite.control not in names:
        raise _refusal(suite, "control", f"has no cell '{suite.control}': {nearest(suite.control, names)}")
    if len(found) == 1:
        raise _refusal(suite, "control", "has only the control cell")
    return [cell._replace(is_control=cell.name == suite.control) for cell in found]


def refuse_budget(budget: int, where: str) -> None:
    """Raise RequestError if a budget cannot confirm even one suspicion, because its re-runs would be wasted."""
    if 0 < budget < CONFIRMATIONS:
        raise RequestError(
            f"{budget} re-run{'' if budget == 1 else 's'} per night cannot confirm a suspicion, which needs "
            f"{CONFIRMATIONS}",
            where=where,
            why="0 turns re-runs off",
            next_command=f"--max_reruns={CONFIRMATIONS}",
        )


def _cells_of(suite: Suite, block: Matrix, site: str, slowdown: float) -> Iterator[Cell]:
    """Yield a cell for every combination of the lists in a block, before exclusions."""
    settings = {  # values in the form of --set=KEY=VALUE
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in block.settings.items()
    }
    rest = {"site": site, "steps": block.steps, "window": block.window, "data": block.data, "settings": settings}
    lists = {name: _list_text(getattr(block, name)) for name in LISTED}
    for request in requests_of(lists, {**rest, "inject_slowdown": slowdown}):
        typed = [(name, getattr(request, name)) for name in LISTED if lists[name] is not None]
        named_values = [(name, value) for name, value in typed if (name, value) not in SILENT]
        words = [f"{value}{name}" if name in NUMBERS else str(value) for name, value in named_values]
        titles = [f"{value} {name}" if name in NUMBERS else str(value) for name, value in named_values]
        name = "-".join([*words, *([block.label] if block.label else [])])
        if not NAME.fullmatch(name):
            why = "use at most 100 letters, digits and _ . -, because the name is part of file names and filters"
            raise _refusal(suite, "matrix", f"makes '{name}', which is not a valid name of a cell", why)
        yield Cell(name, " ".join([*titles, *([f"({block.label})"] if block.label else [])]), request)


def _matches(request: Request, rule: Mapping[str, str | int]) -> bool:
    return all(str(getattr(request, name, None)) == str(value) for name, value in rule.items())


def _list_text(values: str | int | Sequence[str | int] | None) -> str | None:
    if values is None:
        return None
    return ",".join(map(str, values)) if isinstance(values, list) else str(values)


def file_of(suite: Suite) -> str:
    return f"suites/{suite.name}.yml"


def _refusal(suite: Suite, key: str, what: str, why: str = "", next_command: str = "") -> RequestError:
    where = f"{file_of(suite)}: {key}"
    return RequestError(f"suite {suite.name} {what}", where=where, why=why, next_command=next_command)


def find_cell(found: Sequence[Cell], name: str, suite: str) -> Cell:
    cell = next((one for one in found if one.name == name), None)
    if cell is None:
        names, command = [one.name for one in found], f"python launch/nightly.py --suite={suite} --dry_run"
        raise UnknownName(f"suite {suite} has no cell '{name}'", name, names, next_command=command)
    return cell
