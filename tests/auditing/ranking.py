"""Where the published layouts come among all layouts of their benchmark. No claim: the ranking is by bounds."""

from collections import Counter
from typing import NamedTuple

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.layouts import rank, with_layout
from benchmarks.model.published_rows import Reference, read_references
from benchmarks.request.resolve import Request
from tests.auditing.table import Line, Lines, Random, Size

PART = "layouts"


class Placed(NamedTuple):
    """A published layout among the candidates for the same work."""

    row: Reference
    place: int
    of: int
    by: str

    @property
    def text(self) -> str:
        return f"{self.place} of {self.of} on {self.row.gpus}"


def lines(size: Size, random: Random) -> Lines:  # noqa: ARG001 - nothing is drawn
    configs, missing = Configs(), []
    every = groups(configs)
    few = {(rows[0].engine, rows[0].task): name for name, rows in every.items()}  # the small size: one of each
    for name in every if size.full else few.values():
        scales = every[name] if size.full else every[name][:1]
        found = [placed(row, configs) for row in scales]
        missing += [one for one in found if isinstance(one, str)]
        known = [one for one in found if isinstance(one, Placed)]
        if not known:
            continue
        places = ", ".join(one.text for one in known)
        yield Line(PART, f"{name}: place among its candidates", "", f"{places} (by {known[0].by})")
    what = "published layouts that are not ranked, by reason"
    reasons = Counter(missing).most_common()
    yield Line(PART, what, "", "; ".join(f"{count}: {why}" for why, count in reasons) or "none")


def groups(configs: Configs) -> dict[str, list[Reference]]:
    """By series and the layout of a replica: the smallest and the largest scale."""
    found: dict[str, dict[int, Reference]] = {}
    for row in read_references(configs.root):
        one = row.parallelism
        layout = f"TP{one.tensor} PP{one.pipeline} CP{one.context} VP{one.virtual_pipeline}"
        work = f"{row.model} {row.task} {row.dtype} on {row.hardware}, {row.engine}"
        name = f"{work}, {layout}, micro batch {row.micro_batch_size}"
        found.setdefault(name, {})[row.gpus] = row
    return {name: [rows[gpus] for gpus in sorted({min(rows), max(rows)})] for name, rows in found.items()}


def recipe_of(row: Reference, configs: Configs) -> str | None:
    """Of several that train the model so, the one with as long sequences: others do other work."""
    work = (row.engine, row.task, row.sequence_length)
    return next(
        (
            one.name
            for one in configs.recipes(row.backend)
            if (one.engine, one.task, one.sequence_length) == work
            and row.model in one.models
            and row.dtype in one.dtypes.get(row.hardware, [])
        ),
        None,
    )


def placed(row: Reference, configs: Configs) -> Placed | str:
    recipe, backend = recipe_of(row, configs), find_backend(row.backend)
    if recipe is None:
        return "no recipe has its model, precision, device and sequences"
    request = Request(
        backend=row.backend, engine=row.engine, model=row.model, task=row.task, dtype=row.dtype,
        hardware=row.hardware, gpus=row.gpus, recipe=recipe,
        settings={"global_batch_size": str(row.global_batch_size)},
    )  # fmt: skip
    try:
        ranking = rank(with_layout(request, configs, backend), configs, backend)
    except RequestError as error:
        return error.what
    same = [
        one
        for one in ranking.layouts
        if (one.parallelism, one.micro_batch_size) == (row.parallelism, row.micro_batch_size)
    ]
    if not same:
        return "it is none of the candidates"
    return Placed(row, same[0].rank, len(ranking.layouts), ranking.by)
