"""A suite -> its cells, each a request with a name that lasts; and the figures that a suite may watch. Pure.

A cell's history is found by its name, so the name says what was asked for and no more: another cell added to the
suite, or another night, does not change it. That the same name means another benchmark since is seen by the runs
themselves (series.py).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.errors import RequestError, nearest
from benchmarks.gate.rule_settings import G3
from benchmarks.gate.values import Matrix, Metric, Suite
from benchmarks.request import flag_lists
from benchmarks.request.flag_lists import LISTED, NUMBERS
from benchmarks.request.resolve import Request
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.values import Scalar

GATE = "a nightly suite"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")

SECONDS = "seconds_per_step"
EXCESS = "excess"
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name=SECONDS, title="seconds/step", unit="s", direction="lower"),
        Metric(name="tokens_per_second_per_gpu", title="tokens/s per GPU", unit="tokens/s", direction="higher"),
        Metric(name=EXCESS, title="mean over median", unit="ratio", direction="lower"),
        Metric(name="last_loss", title="last loss", unit="nats", direction="same"),
        Metric(name="memory_bytes", title="memory", unit="bytes", direction="lower"),
    )
}
USUAL = {SECONDS: "gate", EXCESS: "watch"}


class Cell(NamedTuple):
    """One benchmark of a suite."""

    name: str
    title: str
    request: Request


class Watched(NamedTuple):
    metric: Metric
    gates: bool


def value_of(entry: FinishedRun, metric: Metric) -> float | None:
    """A run's value of a metric, above 0; None where the run has none. The excess is judged as mean over median."""
    value: float | None = getattr(entry, metric.name)
    if value is not None and metric.name == EXCESS:
        value += 1
    return value if value is not None and 0 < value < float("inf") else None


def watched(suite: Suite) -> list[Watched]:
    """What a suite judges, what gates first."""
    for name in suite.metrics:
        if name not in METRICS:
            raise RequestError(
                f"suite {suite.name} watches no figure that is known, '{name}': {nearest(name, METRICS)}",
                where=f"{_file(suite)}: metrics",
            )
    asked = {**USUAL, **suite.metrics}
    found = [Watched(METRICS[name], how == "gate") for name, how in asked.items() if how != "none"]
    if not any(one.gates for one in found):
        raise RequestError(
            f"suite {suite.name} gates nothing",
            where=f"{_file(suite)}: metrics",
            why="then no night could ever be called a regression",
            next_command=f"metrics: {{{SECONDS}: gate}}",
        )
    return sorted(found, key=lambda one: not one.gates)


def cells(suite: Suite, site: str, slowdown: float = 0.0) -> list[Cell]:
    """Every cell, in order, at a site. RequestError where the suite cannot be meant so."""
    for rule in suite.exclude:
        _refuse_unknown_axes(suite, rule)
    refuse_budget(suite.rerun_budget, f"{_file(suite)}: rerun_budget")
    asked = [one for block in suite.matrix for one in _asked_by(suite, block, site, slowdown)]
    for rule in suite.exclude:
        _refuse_idle(suite, rule, [one.request for one in asked])
    found = [
        Cell(_name(suite, one.typed, one.label), _title(one.typed, one.label), one.request)
        for one in asked
        if not any(_matches(one.request, rule) for rule in suite.exclude)
    ]
    if not found:
        raise RequestError(f"suite {suite.name} has no cell left", where=f"{_file(suite)}: exclude")
    names = [cell.name for cell in found]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(
                f"two cells of suite {suite.name} are called {name}",
                where=f"{_file(suite)}: matrix",
                why="a cell's history is found by its name, which is made of what the lists name",
                next_command="label: a word, in one of the two blocks",
            )
    return found


class _Asked(NamedTuple):
    """A combination of what the lists of a block name, before anything is excluded."""

    request: Request
    typed: list[tuple[str, str | int]]
    label: str | None


def refuse_budget(budget: int, where: str) -> None:
    """One that no suspicion could be answered with would be spent for nothing."""
    if 0 < budget < G3.confirmations:
        raise RequestError(
            f"{budget} re-run{'' if budget == 1 else 's'} a night can confirm nothing: a suspicion takes "
            f"{G3.confirmations}",
            where=where,
            next_command=f"{G3.confirmations} or more; or 0, and nothing is run again",
        )


def _asked_by(suite: Suite, block: Matrix, site: str, slowdown: float) -> Iterator[_Asked]:
    _refuse_profile(suite, block)
    rest = {
        "site": site,
        "steps": block.steps,
        "window": block.window,
        "data": block.data,
        "settings": {key: _setting_text(value) for key, value in block.settings.items()},
        "inject_slowdown": slowdown,
    }
    lists = {name: _list_text(getattr(block, name)) for name in LISTED}
    for request in flag_lists.cells(lists, rest):
        typed = [(name, getattr(request, name)) for name in LISTED if lists[name] is not None]
        yield _Asked(request, typed, block.label)


def _refuse_profile(suite: Suite, block: Matrix) -> None:
    if block.profile not in (None, "none"):
        raise RequestError(
            f"--profile={block.profile} has no place in {GATE}",
            where=f"{_file(suite)}: matrix: profile",
            why="a profiler slows what it looks at, so the figures of a profiled run are never compared",
            next_command="leave profile out",
        )


def _refuse_unknown_axes(suite: Suite, rule: Mapping[str, str | int]) -> None:
    for name in rule:
        if name not in LISTED:
            raise RequestError(
                f"suite {suite.name} excludes by '{name}', which no list names: {nearest(name, LISTED)}",
                where=f"{_file(suite)}: exclude",
            )


def _refuse_idle(suite: Suite, rule: Mapping[str, str | int], asked: Sequence[Request]) -> None:
    """A mistyped value would leave every cell in."""
    if any(_matches(request, rule) for request in asked):
        return
    near = ""
    for name, value in rule.items():
        there = sorted({str(getattr(request, name)) for request in asked})
        if str(value) not in there:
            near = f": no cell has {name} '{value}', {nearest(str(value), there)}"
            break
    raise RequestError(
        f"suite {suite.name} excludes a cell that does not exist, {dict(rule)}{near}",
        where=f"{_file(suite)}: exclude",
    )


def _matches(request: Request, rule: Mapping[str, str | int]) -> bool:
    return all(str(getattr(request, name)) == str(value) for name, value in rule.items())


def _list_text(values: str | int | Sequence[str | int] | None) -> str | None:
    if values is None:
        return None
    return ",".join(map(str, values)) if isinstance(values, list) else str(values)


def _setting_text(value: Scalar) -> str:
    """As a person would type it after --set=KEY=."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name(suite: Suite, typed: Sequence[tuple[str, str | int]], label: str | None) -> str:
    words = [f"{value}{name}" if name in NUMBERS else str(value) for name, value in typed if _speaks(name, value)]
    name = "-".join([*words, *([label] if label else [])])
    if not NAME.fullmatch(name):
        raise RequestError(
            f"'{name}' cannot be the name of a cell",
            where=f"{_file(suite)}: matrix",
            why="letters, digits and _ . - are, 100 at most: it is a part of file names and of filters",
        )
    return name


def _title(typed: Sequence[tuple[str, str | int]], label: str | None) -> str:
    words = [f"{value} {name}" if name in NUMBERS else str(value) for name, value in typed if _speaks(name, value)]
    return " ".join([*words, *([f"({label})"] if label else [])])


def _speaks(name: str, value: str | int) -> bool:
    """What is so everywhere need not be in a name."""
    return (name, value) not in (("task", "pretrain"), ("pgle", "off"))


def _file(suite: Suite) -> str:
    return f"configs/suites/{suite.name}.yml"


def chosen(found: Sequence[Cell], name: str, suite: str) -> Cell:
    """The cell of a name, or the only one whose name holds it."""
    exact = [cell for cell in found if cell.name == name]
    fitting = exact or [cell for cell in found if name and name in cell.name]
    if len(fitting) != 1:
        hint = nearest(name, [cell.name for cell in found])
        raise RequestError(
            f"suite {suite} has no cell '{name}': {hint}"
            if not fitting
            else f"'{name}' is a part of the names of {len(fitting)} cells: {', '.join(c.name for c in fitting)}",
            next_command=f"python launch/nightly.py --suite={suite} --dry_run",
        )
    return fitting[0]
