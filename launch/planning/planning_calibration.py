"""The calibration of estimates, made anew from the published rows. Configs.calibration reads the one that is kept."""

from collections.abc import Iterator, Sequence

import msgspec
import yaml

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.planning.calibration import FILE, MAKE_ANEW, Row, row_of
from benchmarks.planning.calibration_report import calibration_lines
from benchmarks.planning.covered import Fit
from benchmarks.planning.leaving_out import Left, fitted, leave_out
from benchmarks.planning.predictions import outcomes, read_predictions
from benchmarks.planning.published import as_benchmark
from benchmarks.references.references import read_references
from benchmarks.values import Value, to_builtins
from launch.command_line.output import answer
from launch.planning.published_layouts import Placed, placed, placed_lines

HEADER = """\
# What came out of the published rows: estimates are made of it, without a fit.
# Made by python launch/plan.py calibration --write; without --write it shows how good it is.
"""
DIGITS = 5  # that are kept of a number: more would differ from machine to machine


class Made(Value, frozen=True):
    """A calibration made anew, with what it was judged by."""

    fit: Fit
    rows: list[Row]
    left: list[Left]
    outside: list[str]  # rows that nothing can be computed of


class Calibrated(Fit, frozen=True, kw_only=True):
    """For --json."""

    not_judged: list[str]
    layouts: list[Placed] | None  # null without --layouts


def show(configs: Configs, *, write: bool, layouts: bool) -> int:
    made = make(configs)
    if write:
        (configs.root / FILE).write_text(HEADER + _yaml(made.fit), encoding="utf-8")
    ranked = list(placed(made.rows, made.fit, configs)) if layouts else None
    data = Calibrated(**msgspec.structs.asdict(made.fit), not_judged=made.outside, layouts=ranked)
    answer(data, lambda: "\n".join(_lines(made, ranked, configs, write=write)))
    return EXIT_VALID


def _lines(made: Made, ranked: Sequence[Placed] | None, configs: Configs, *, write: bool) -> Iterator[str]:
    yield from calibration_lines(made.left, made.fit)
    for text in made.outside:
        yield f"not judged: {text}"
    held = list(outcomes(read_predictions(configs.root), read_references(configs.root)))
    yield from ("", "predictions of which a row was published since:", *(held or ["none"]))
    if ranked is not None:
        yield from ("", *placed_lines(ranked))
    if not write and configs.calibration().fit != made.fit:
        yield f"\n{configs.root / FILE} keeps another calibration, or none\n  next:  {MAKE_ANEW}"


def make(configs: Configs) -> Made:
    """Every published row as its benchmark, each left out; then the fit of all."""
    rows, outside = published_rows(configs)
    if not rows:
        raise RequestError(
            "no published row can be computed",
            where=str(configs.root / "references"),
            why="a calibration is fitted to published rows",
            next_command="the folder of Stepmark's own configs is one to begin with",
        )
    left = leave_out(rows)
    return Made(rows=rows, fit=rounded(fitted(rows, left)), left=left, outside=outside)


def rounded(fit: Fit) -> Fit:
    """As it is kept."""
    return msgspec.convert(_rounded(to_builtins(fit)), Fit)


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _yaml(fit: Fit) -> str:
    return yaml.safe_dump(to_builtins(fit), sort_keys=False, width=118, default_flow_style=None)


def published_rows(configs: Configs) -> tuple[list[Row], list[str]]:
    rows, outside = [], []
    for reference in read_references(configs.root):
        backend = find_backend(reference.backend)
        try:
            benchmark = as_benchmark(reference, configs, backend)
        except RequestError as error:
            outside.append(f"{reference.name}: {error.what}")
            continue
        row = row_of(reference, benchmark, backend.storage(benchmark))
        if row is None:
            outside.append(f"{reference.name}: its bound is not known")
        else:
            rows.append(row)
    return rows, outside
