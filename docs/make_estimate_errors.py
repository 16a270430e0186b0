"""Writes configs/estimate_errors.yml: every published row estimated from the others.

.venv/bin/python docs/make_estimate_errors.py

Run it after rows of configs/references, recipes, memory, FLOPs or bounds have changed.
"""

import itertools
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.bounds import bound
from benchmarks.model.estimate import (
    FILE,
    KINDS,
    SCALE,
    SERIES,
    ErrorTable,
    EstimateError,
    PublishedData,
    Traits,
    as_benchmark,
    is_comparable,
    nearest_row,
    read_published,
    row_traits,
    unlike_traits,
)
from benchmarks.model.published_rows import Reference
from benchmarks.values import to_builtins

HEADER = """\
# How far estimates of the published rows were off, in percent of the published time (docs/explanation/estimates.md).
# `kind`: each row was estimated without the rows that share it. Written by docs/make_estimate_errors.py.
"""


def errors_of(published: PublishedData) -> list[EstimateError]:
    """Every published row with a bound, estimated from the others: for each kind, without those that share it."""
    configs = published.configs
    bounds = {row: seconds for row in published.rows if (seconds := bound_of(row, configs))}
    traits = {row: row_traits(row, configs) for row in bounds}
    found = []
    for experts, kind in itertools.product((False, True), (SCALE, *reversed(KINDS))):
        errors = []
        for row, seconds in bounds.items():
            model, routing = row.trained_model(configs), row.routing or None
            if experts != (model.experts is not None):
                continue
            others = [one for one in bounds if may_estimate(kind, row, one, traits)]
            others = [one for one in others if is_comparable(one, model, routing, configs)]
            if others:
                near = nearest_row(traits[row], row.gpus, others, configs)
                errors.append(100 * abs(near.seconds * seconds / bounds[near] / row.seconds - 1))
        if errors:
            found.append(EstimateError(kind, len(errors), round(median(errors), 1), round(max(errors), 1), experts))
    return found


def may_estimate(kind: str, row: Reference, other: Reference, traits: dict[Reference, Traits]) -> bool:
    kinds = [name for name, _ in unlike_traits(traits[row], traits[other])]
    if kind == SCALE:
        return not kinds and other.gpus != row.gpus
    return bool(kinds) if kind == SERIES else kind in kinds


def bound_of(row: Reference, configs: Configs) -> float | None:
    backend = find_backend(row.backend)
    try:
        benchmark = as_benchmark(row, configs, backend)
    except RequestError:
        return None
    found = bound(benchmark, backend.storage(benchmark))
    return None if found.unknown else found.seconds


def main() -> None:
    configs = Configs()
    table = ErrorTable(date=f"{datetime.now(UTC):%Y-%m-%d}", errors=errors_of(read_published(configs)))
    text = yaml.safe_dump(to_builtins(table), sort_keys=False, default_flow_style=None, width=118)
    (configs.root / FILE).write_text(HEADER + text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
