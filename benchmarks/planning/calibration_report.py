"""How good estimates are, for people. Pure; lines of text."""

from collections.abc import Mapping, Sequence

from benchmarks.planning.calibration import MEANING
from benchmarks.planning.covered import SERIES, Error, Errors, Fit, Method, family_of, made_so
from benchmarks.planning.leaving_out import Left, by_series, error_of, mean_error
from benchmarks.rendering.columns import aligned, columns


def calibration_lines(left: Sequence[Left], fit: Fit) -> list[str]:
    """Errors by what was left out; by framework and precision; then every row."""
    return [
        f"{fit.rows} published rows in {fit.series} series; errors in percent of the published time, every series",
        "counted once: the median of the series' medians, and the worst row",
        "",
        *columns([KINDS, *(_kind_row(errors) for errors in fit.errors if " + " not in errors.kind)]),
        "what is new in more than one way: --json",
        "",
        "by framework and precision, each series left out; what is chosen estimates further series",
        *columns([FAMILIES, *family_rows(left, fit)]),
        "",
        f"the model: {fit.rows} rows, fitted together",
        *aligned(
            [(name.replace("_", " "), f"{fit.shares[name]:.4g} {meaning}") for name, meaning in MEANING.items()]
        ),
        "",
        "every row, its series left out",
        *columns([ROWS, *(_row(one) for one in left if one.kind == SERIES)]),
        "",
    ]


NAMES: Mapping[Method, str] = {"model": "model", "lookup": "nearest row", "constant": "constant"}
KINDS = (
    "predicted",
    "series",
    "rows",
    "estimate",
    "model",
    "nearest row",
    "constant x bound",
    "90% within",
    "covered",
)
FAMILIES = ("", "series", "model", "nearest row", "constant x bound", "chosen")
ROWS = ("", "layout", "published", "bound", "model %", "nearest row %", "constant x bound %", "source")


def _kind_row(errors: Errors) -> tuple[str, ...]:
    return (
        made_so(errors.kind),
        str(errors.series),
        str(errors.rows),
        *map(_both, (errors.estimate, errors.model, errors.lookup, errors.constant)),
        "-" if errors.estimate.within_percent is None else f"{errors.estimate.within_percent:.1f}",
        "-" if errors.estimate.covered_percent is None else f"{errors.estimate.covered_percent:.0f}%",
    )


def _both(error: Error) -> str:
    return f"{error.median:.1f} / {error.worst:.1f}"


def family_rows(left: Sequence[Left], fit: Fit) -> list[tuple[str, ...]]:
    """Chosen by the mean of the series' medians, which is shown with the worst row."""
    table = []
    for family in dict.fromkeys(family_of(one.row.traits) for one in left):
        own = [one for one in left if one.kind == SERIES and family_of(one.row.traits) == family]
        if not own:
            continue
        errors = [
            f"{mean_error(own, method):.1f} / {error_of(own, method).worst:.1f}"
            for method in ("model", "lookup", "constant")
        ]
        table.append((family, str(len(by_series(own, "model"))), *errors, NAMES[fit.method(SERIES, family)]))
    return table


def _row(one: Left) -> tuple[str, ...]:
    reference = one.row.reference
    return (
        reference.name,
        reference.parallelism.short(),
        f"{one.row.seconds:.4g} s",
        f"{one.row.bound.seconds:.3f} s",
        *(f"{error:+.1f}" for error in (one.model, one.lookup, one.constant)),
        reference.citation,
    )
