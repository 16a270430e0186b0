"""The cells of a sweep (combinations of flags), its record, and its remaining runs. No I/O.

The record is the file sweep-<time>-<key>.json next to the run folders. It contains the cells, and the runs that were
started for each cell. Only a run's result.json shows how the run ended. sweep_report.py computes the metrics.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from benchmarks.errors import EXIT_FAILED, EXIT_INVALID, EXIT_VALID, LIST_COMMAND, RequestError
from benchmarks.model.forecast import Forecast
from benchmarks.request.resolve import LISTED, Request
from benchmarks.runs.campaign_record import SCHEMA_VERSION
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.sweeps.scaling import Scale, scale_of, scale_text
from benchmarks.text import columns, duration_text, first_few, plural, seconds_text
from benchmarks.values import Benchmark, Value, benchmark_fields, to_builtins

DEFAULT_PAIRS = 6  # the default for an A/B comparison; three pairs would have a wide interval
SHOWN_CELLS = 20  # the most refused cells that an error message lists


# --- the cells ----------------------------------------------------------------------------------


def labels(requests: Sequence[Request]) -> list[str]:
    """Return a name for each request: the flags that differ between the requests."""
    differing = [name for name in LISTED if len({getattr(request, name) for request in requests}) > 1]
    words = [
        [f"--{name}={getattr(request, name)}" for name in differing if getattr(request, name) is not None]
        for request in requests
    ]
    whole = (f"{request.backend} {request.model}" for request in requests)
    return [" ".join(found) or name for found, name in zip(words, whole, strict=True)]


def compares(requests: Sequence[Request]) -> bool:
    """Return whether the sweep is an A/B comparison: whether its cells differ in --pgle."""
    return len({request.pgle for request in requests}) > 1


def repeats_wanted(requests: Sequence[Request], typed: int | None) -> int:
    """Return how often each cell runs. By default, an A/B comparison has several pairs."""
    if typed is not None:
        return typed
    return DEFAULT_PAIRS if compares(requests) and all(request.profile == "none" for request in requests) else 1


def jobs_at_once(requests: Sequence[Request], typed: int | None, allowed: int) -> int:
    """Return how many runs may be queued at once: 1 for an A/B comparison, whose runs must not share the network."""
    if typed is not None:
        return typed
    return 1 if compares(requests) else allowed


# --- checking the cells -------------------------------------------------------------------------


class CheckedCells(NamedTuple):
    """The valid cells with their benchmarks, and the refused cells."""

    cells: list["Cell"]
    benchmarks: list[Benchmark]
    refused: list["RefusedCell"]

    @property
    def names(self) -> list[str]:
        """Return the names of the valid cells, then of the refused cells."""
        return labels([*(one.request for one in self.cells), *(one.request for one in self.refused)])


def check(requests: Sequence[Request], resolved: Callable[[Request], Benchmark], skip_refused: bool) -> CheckedCells:
    """Resolve every cell before any run starts. If some cells are invalid, raise one error that lists all of them."""
    checked = CheckedCells([], [], [])
    errors: list[RequestError] = []
    for request in requests:
        try:
            benchmark = resolved(request)
        except RequestError as error:
            errors.append(error)
            why = f" ({error.why})" if error.why else ""
            checked.refused.append(RefusedCell(request=request, reason=error.what + why))
        else:
            checked.cells.append(Cell(request=request, digest=digest(benchmark), scale=scale_of(benchmark)))
            checked.benchmarks.append(benchmark)
    if errors and (not checked.cells or not skip_refused):
        raise _refusal(checked, errors)
    _refuse_mixed_recipes(checked)
    return checked


def _refuse_mixed_recipes(checked: CheckedCells) -> None:
    """Raise RequestError if the scales of a benchmark use different recipes, which have different batches."""
    recipes: dict[bytes, tuple[Request, str]] = {}
    for cell, benchmark in zip(checked.cells, checked.benchmarks, strict=True):
        work = msgspec.json.encode(msgspec.structs.replace(cell.request, gpus=None, nodes=None, pgle="off"))
        first, recipe = recipes.setdefault(work, (cell.request, benchmark.recipe.name))
        if recipe != benchmark.recipe.name:
            names = labels([first, cell.request])
            raise RequestError(
                "the scales of the sweep would use different recipes",
                where=f"{names[0]}: {recipe}; {names[1]}: {benchmark.recipe.name}",
                why="the recipes' batches and settings differ, so the results are not comparable",
                next_command=f"--recipe={benchmark.recipe.name}",
            )


def _refusal(checked: CheckedCells, errors: Sequence[RequestError]) -> RequestError:
    if not checked.cells and len({refused.reason for refused in checked.refused}) == 1:
        return errors[0]  # every cell has the same error
    count = len(errors)
    others = len(checked.cells)
    names = checked.names[others:]
    lines = [f"{name}: {refused.reason}" for name, refused in zip(names, checked.refused, strict=True)]
    skip = [f"--skip_refused runs the other {others}"] if checked.cells else []
    cures = dict.fromkeys(error.next_command or LIST_COMMAND for error in errors)
    what = f"{count} of the {count + others} cells of the sweep cannot run, so nothing was started"
    shown, commands = (first_few(texts, SHOWN_CELLS, "\n         ") for texts in (lines, [*skip, *cures]))
    return RequestError(what, where=shown, next_command=commands)


def open_choices(checked: CheckedCells) -> list[str]:
    """Return notes if the default --hardware or --dtype is not the same for all cells."""
    cells = list(zip(checked.cells, checked.benchmarks, strict=True))
    devices = sorted({one.hardware.name for cell, one in cells if cell.request.hardware is None})
    dtypes = sorted({one.dtype for cell, one in cells if cell.request.dtype is None})
    texts = [
        (devices, "run on", "so their speeds are not comparable; --hardware sets one device for all"),
        (dtypes, "train in", "as their recipes do; --dtype sets one precision for all"),
    ]
    return [f"the cells {verb} {' and '.join(found)}, {end}" for found, verb, end in texts if len(found) > 1]


def plan_text(checked: CheckedCells, repeats: int, expected: Sequence[Forecast | None]) -> str:
    """Return the cells as a table, each with its expected speed, and the number of planned runs."""
    table: list[tuple[str, ...]] = [("cell", "expected step", "duration", "runs on")]
    for name, cell, one, found in zip(checked.names, checked.cells, checked.benchmarks, expected, strict=False):
        speed = ["unknown", "-"]
        if found is not None and found.seconds is not None:
            least = "at least " if found.basis == "bound" else ""
            speed = [f"{least}{seconds_text(found.seconds)}", f"{least}{duration_text(found.seconds * one.steps)}"]
        table.append((name, *speed, f"{scale_text(cell.scale)}, {one.dtype}"))
    refused = zip(checked.names[len(checked.cells) :], checked.refused, strict=True)
    table += [(name, "-", "-", f"refused: {one.reason}") for name, one in refused]
    count = len(checked.cells)
    return "\n".join(
        [
            f"{plural(count, 'cell')} x {plural(repeats, 'repeat')} = {plural(count * repeats, 'run')}",
            *columns(table),
            "",
            "nothing was started (--dry_run); the dry run of a single cell shows its whole plan",
        ]
    )


def digest(benchmark: Benchmark) -> str:
    """Return the digest of a benchmark.

    It excludes the site's job options, such as a time limit, because they do not change the metrics. It also excludes
    a stored PGLE profile, because the sweep itself may have recorded the profile.
    """
    data = {**to_builtins(benchmark_fields(benchmark)), "site": benchmark.site.name, "pgle_profile": ""}
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()


# --- the record ---------------------------------------------------------------------------------


class Cell(Value, frozen=True):
    request: Request
    digest: str  # digest of the resolved benchmark, because the configs may change later
    scale: Scale


class RefusedCell(Value, frozen=True):
    """An invalid cell that was skipped because of --skip_refused."""

    request: Request
    reason: str


class SweepRun(Value, frozen=True):
    """A run of a sweep, recorded immediately before it starts."""

    run_id: str
    cell: int  # index in `cells`, from 0
    repeat: int  # number of the repeat, from 1
    started: float  # Unix time
    trouble: str | None = None  # why the run could not be started


class Sweep(Value, frozen=True):
    """The record of a sweep: sweep-<time>-<key>.json."""

    schema_version: int
    sweep_id: str
    key: str  # a hash of the flags; sweeps with equal flags have equal keys
    command: list[str]
    repeats: int
    cells: list[Cell]
    refused: list[RefusedCell]
    runs: list[SweepRun]
    shown: bool = False  # True: the table was shown and all runs are valid, so the same flags start a new sweep


Results = Mapping[str, FinishedRun | None]  # run id -> result; None: the run has no result


class Slot(NamedTuple):
    """One run that a sweep needs: one repeat of one cell."""

    cell: int
    repeat: int


def key(requests: Sequence[Request], repeats: int) -> str:
    typed = msgspec.json.encode([requests, repeats], order="sorted")
    return hashlib.sha256(typed).hexdigest()[:12]


def new_sweep(requests: Sequence[Request], checked: CheckedCells, repeats: int, command: Sequence[str]) -> Sweep:
    now = time.time()
    when = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
    name = key(requests, repeats)
    return Sweep(
        schema_version=SCHEMA_VERSION,
        sweep_id=f"sweep-{when}-{name}",
        key=name,
        command=list(command),
        repeats=repeats,
        cells=checked.cells,
        refused=checked.refused,
        runs=[],
    )


# --- the remaining runs -------------------------------------------------------------------------


def slots(cell_count: int, repeats: int) -> list[Slot]:
    """Return all runs of a sweep in order: repeat by repeat. Every second repeat runs the cells in reverse order.

    Therefore a drift of the machine affects all cells equally, and no cell is always the first.
    """
    found = []
    for repeat in range(1, repeats + 1):
        order = range(cell_count) if repeat % 2 else reversed(range(cell_count))
        found += [Slot(cell, repeat) for cell in order]
    return found


def still_to_do(sweep: Sweep, results: Results, going: Collection[str]) -> list[Slot]:
    """Return the slots that have neither a valid run nor a run that is still in progress."""
    kept = {Slot(run.cell, run.repeat) for run in sweep.runs if run.run_id in going or is_valid(results, run)}
    return [slot for slot in slots(len(sweep.cells), sweep.repeats) if slot not in kept]


def is_valid(results: Results, run: SweepRun) -> bool:
    result = results.get(run.run_id)
    return result is not None and result.status == "valid"


def exit_code(sweep: Sweep, results: Results) -> int:
    """Return the exit code. If a slot has no valid run, its last run counts; a failed run outranks an invalid run."""
    codes = dict.fromkeys(slots(len(sweep.cells), sweep.repeats), EXIT_FAILED)
    for run in sweep.runs:
        slot, result = Slot(run.cell, run.repeat), results.get(run.run_id)
        if codes.get(slot) == EXIT_VALID:
            continue
        status = result.status if result else "failed"
        codes[slot] = {"valid": EXIT_VALID, "invalid": EXIT_INVALID, "failed": EXIT_FAILED}[status]
    return max(codes.values(), key=[EXIT_VALID, EXIT_INVALID, EXIT_FAILED].index, default=EXIT_VALID)
