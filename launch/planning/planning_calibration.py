"""The calibration of estimates, made anew from the published rows. Configs.calibration reads the one that is kept."""

import msgspec
import yaml

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.planning.calibration import (
    FAMILIES_FILE,
    FILE,
    MAKE_ANEW,
    Calibration,
    Fits,
    Judged,
    Row,
    fitted,
    judge,
    rounded,
    row_of,
)
from benchmarks.planning.forecast_report import calibration_lines
from benchmarks.planning.published import as_benchmark
from benchmarks.references.references import read_references
from benchmarks.values import Value, json_text, to_builtins

HEADER = """\
# What came out of the published rows, by family (calibration_families.yml): estimates are made of it, without a fit.
# Made by python launch/plan.py calibration --write; without --write it shows how good it is.
"""


class Made(Value, frozen=True):
    """A calibration made anew, with what it was judged by."""

    calibration: Calibration
    judged: list[Judged]
    outside: list[str]  # rows of no family, or that nothing can be computed of


def show(configs: Configs, as_json: bool, write: bool) -> int:
    found = configs.calibration()
    if not found.families:
        raise RequestError(
            f"{configs.root / FAMILIES_FILE} is missing",
            where=str(configs.root),
            why="it says which published rows are fitted together",
            next_command="the file of Stepmark's own configs is one to begin with",
        )
    made = make(configs, found)
    if write:
        text = yaml.safe_dump(to_builtins(Fits(fits=made.calibration.fits)), sort_keys=False, width=118)
        (configs.root / FILE).write_text(HEADER + text, encoding="utf-8")
    if as_json:
        print(json_text(made))
        return EXIT_VALID
    print("\n".join(calibration_lines(made.judged, made.calibration)))
    for text in made.outside:
        print(f"not judged: {text}")
    if not write and found != made.calibration:
        print(f"\n{configs.root / FILE} keeps another calibration, or none\n  next:  {MAKE_ANEW}")
    return EXIT_VALID


def make(configs: Configs, found: Calibration) -> Made:
    """Every published row as its benchmark, in its family; then the fits."""
    rows, outside = published_rows(configs)
    judged: list[Judged] = []
    fits = []
    for family in found.families:
        own = [row for row in rows if family.holds(row.benchmark)]
        if not own:
            continue
        of_family = judge(family, own)
        judged += of_family
        fits.append(rounded(fitted(family, own, of_family)))
    homeless = [row for row in rows if found.family_of(row.benchmark) is None]
    outside += [f"{row.reference.name}: no family holds it" for row in homeless]
    return Made(calibration=msgspec.structs.replace(found, fits=fits), judged=judged, outside=outside)


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
