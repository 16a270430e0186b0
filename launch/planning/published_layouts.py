"""Where `plan.py layouts` puts the layouts that published runs have: a check of its order."""

from collections.abc import Iterator, Sequence

import msgspec

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.planning.calibration import Calibration, Row, fit_shares
from benchmarks.planning.covered import Fit, version
from benchmarks.planning.layouts import alike, rank
from benchmarks.planning.leaving_out import covered_by
from benchmarks.planning.seeding import with_layout
from benchmarks.references.references import Reference
from benchmarks.rendering.columns import columns
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Value

HEADINGS = ("", "layout", "place", "of", "top", "tied with the first", "in the tie", "place if unpublished")


class Placed(Value, frozen=True):
    """A published layout among all that its model, batch and GPUs allow."""

    name: str
    layout: str
    place: int | None  # None: see why
    candidates: int = 0
    tied: int = 0
    in_the_tie: bool = False
    unpublished_place: int | None = None  # where nothing of its layout is known to have been run
    why: str = ""


def placed_lines(found: Sequence[Placed]) -> list[str]:
    ranked = [one for one in found if one.place]
    good = sum(one.in_the_tie or (one.place or 0) <= one.candidates / 20 for one in ranked)
    return [
        "published layouts among their candidates, by a fit without them (newest version, smallest scale)",
        *columns([HEADINGS, *map(_line, ranked)]),
        f"{good} of {len(ranked)} are in the first 5% or in the tie that holds the first",
        *(f"not ranked: {one.name} {one.layout}: {one.why}" for one in found if not one.place),
    ]


def _line(one: Placed) -> tuple[str, ...]:
    top = f"{100 * (one.place or 0) / one.candidates:.0f}%"
    tie = "yes" if one.in_the_tie else "no"
    unpublished = f"{one.unpublished_place}"
    return (one.name, one.layout, str(one.place), str(one.candidates), top, str(one.tied), tie, unpublished)


def placed(rows: Sequence[Row], fit: Fit, configs: Configs) -> Iterator[Placed]:
    for series in dict.fromkeys(row.series for row in rows):
        own = [row for row in rows if row.series == series]
        newest = max(own, key=lambda row: (version(row.reference), -row.reference.gpus))
        others = [row for row in rows if row.traits.layout != newest.traits.layout]
        unfitted = msgspec.structs.replace(fit, shares=fit_shares(others))
        unpublished = msgspec.structs.replace(unfitted, covered=covered_by(others))
        one = newest.reference
        try:
            first, second = (
                _placed(one, Calibration(fit=kept, published=[]), configs) for kept in (unfitted, unpublished)
            )
        except RequestError as error:
            yield Placed(name=one.name, layout=one.parallelism.short(), place=None, why=error.what)
        else:
            yield msgspec.structs.replace(first, unpublished_place=second.place)


def _placed(row: Reference, calibration: Calibration, configs: Configs) -> Placed:
    backend = find_backend(row.backend)
    request = with_layout(_request(row, configs), configs, backend)
    ranking = rank(request, configs, backend, calibration)
    asked = resolve(request, configs, backend)
    own = msgspec.structs.replace(asked, parallelism=row.parallelism, micro_batch_size=row.micro_batch_size)
    found = next((one for one in ranking.layouts if alike(one, own)), None)
    layout = f"{row.parallelism.short()} MBS{row.micro_batch_size}"
    if found is None or asked.sequence_length != row.sequence_length:
        why = (
            "it does not fit by the plan's memory"
            if found is None
            else "the recipe's sequences are of another length"
        )
        return Placed(name=row.name, layout=layout, place=None, why=why)
    return Placed(
        name=row.name,
        layout=layout,
        place=found.rank,
        candidates=len(ranking.layouts),
        tied=sum(one.tied for one in ranking.layouts),
        in_the_tie=found.tied,
    )


def _request(row: Reference, configs: Configs) -> Request:
    recipe = next(
        (
            one
            for one in configs.recipes(row.backend)
            if (one.engine, one.task) == (row.engine, row.task)
            and row.model in one.models
            and row.dtype in one.dtypes.get(row.hardware, [])
        ),
        None,
    )
    if recipe is None:
        raise RequestError("no recipe has its model, precision and device", where=row.where, next_command="none")
    return Request(
        backend=row.backend,
        engine=row.engine,
        model=row.model,
        task=row.task,
        dtype=row.dtype,
        hardware=row.hardware,
        gpus=row.gpus,
        recipe=recipe.name,
        settings={"global_batch_size": str(row.global_batch_size)},
    )
