"""The cells of a sweep (its combinations of flags), its record, and its remaining runs. Pure.

The record is one file next to the run folders, sweep-<time>-<key>.json, with the cells and the runs that were started
for each. How a run ended is only in its result.json. sweep_report.py computes the metrics of a sweep.
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

DEFAULT_PAIRS = 6  # for an A/B comparison, because three pairs have a wide interval
SHOWN_CELLS = 20  # refused cells in an error message


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
    """Whether the sweep is an A/B comparison: its cells differ in --pgle."""
    return len({request.pgle for request in requests}) > 1


def repeats_wanted(requests: Sequence[Request], typed: int | None) -> int:
    """Return how often each cell runs. By default, an A/B comparison has several pairs."""
    if typed is not None:
        return typed
    return DEFAULT_PAIRS if compares(requests) and all(request.profile == "none" for request in requests) else 1


def jobs_at_once(requests: Sequence[Request], typed: int | None, allowed: int) -> int:
    """Return the limit of queued runs: 1 for an A/B comparison, so that its runs do not share the network."""
    if typed is not None:
        return typed
    return 1 if compares(requests) else allowed


# --- checking the cells -------------------------------------------------------------------------


class CheckedCells(NamedTuple):
    """The valid cells with their benchmarks, and the refused ones."""

    cells: list["Cell"]
    benchmarks: list[Benchmark]
    refused: list["RefusedCell"]

    @property
    def names(self) -> list[str]:
        """Return the names of the cells, then of the refused ones."""
        return labels([*(one.request for one in self.cells), *(one.request for one in self.refused)])


def check(requests: Sequence[Request], resolved: Callable[[Request], Benchmark], skip_refused: bool) -> CheckedCells:
    """Resolve every cell before any run starts. If a cell cannot work, raise one error about all such cells."""
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
    """Raise RequestError if the scales of a benchmark use different recipes, whose batches are not comparable."""
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
    what = f"{count} of the {count + others} cells of the sweep cannot work, so nothing was started"
    shown, commands = (first_few(texts, SHOWN_CELLS, "\n         ") for texts in (lines, [*skip, *cures]))
    return RequestError(what, where=shown, next_command=commands)


def open_choices(checked: CheckedCells) -> list[str]:
    """Return notes if cells without --hardware run on different devices, or without --dtype in other precisions."""
    cells = list(zip(checked.cells, checked.benchmarks, strict=True))
    devices = sorted({one.hardware.name for cell, one in cells if cell.request.hardware is None})
    dtypes = sorted({one.dtype for cell, one in cells if cell.request.dtype is None})
    texts = [
        (devices, "run on", "so their speeds are not comparable; --hardware sets one device for all"),
        (dtypes, "train in", "as their recipes do; --dtype sets one precision for all"),
    ]
    return [f"the cells {verb} {' and '.join(found)}, {end}" for found, verb, end in texts if len(found) > 1]


def plan_text(checked: CheckedCells, repeats: int, expected: Sequence[Forecast | None]) -> str:
    """Return the planned runs as a table, each with its expected speed."""
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

    It excludes the site's options for jobs, such as a time limit, which do not change the metrics. It also excludes a
    stored PGLE profile, because the sweep itself may have made it.
    """
    data = {**to_builtins(benchmark_fields(benchmark)), "site": benchmark.site.name, "pgle_profile": ""}
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()


# --- the record ---------------------------------------------------------------------------------


class Cell(Value, frozen=True):
    request: Request
    digest: str  # digest of the resolved benchmark, because the configs may change later
    scale: Scale


class RefusedCell(Value, frozen=True):
    """A cell that cannot work and was skipped by --skip_refused."""

    request: Request
    reason: str


class SweepRun(Value, frozen=True):
    """A run that was started or is about to start; it is recorded before the start."""

    run_id: str
    cell: int  # index in `cells`, from 0
    repeat: int  # number of the repeat, from 1
    started: float  # Unix time
    trouble: str | None = None  # why the run could not be started


class Sweep(Value, frozen=True):
    """The record of a sweep: sweep-<time>-<key>.json."""

    schema_version: int
    sweep_id: str
    key: str  # equal for equal flags
    command: list[str]
    repeats: int
    cells: list[Cell]
    refused: list[RefusedCell]
    runs: list[SweepRun]
    shown: bool = False  # the table was shown and all runs are valid, so the same flags start a new sweep


Results = Mapping[str, FinishedRun | None]  # run id -> result; None: the run has no result


class Slot(NamedTuple):
    """One run that a sweep needs: a repeat of a cell."""

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
    """Return all runs of a sweep in order: repeat by repeat, with the cells of every second repeat in reverse.

    So a drift of the machine affects all cells equally, and no cell is always the first.
    """
    found = []
    for repeat in range(1, repeats + 1):
        order = range(cell_count) if repeat % 2 else reversed(range(cell_count))
        found += [Slot(cell, repeat) for cell in order]
    return found


def still_to_do(sweep: Sweep, results: Results, going: Collection[str]) -> list[Slot]:
    """Return the slots that have neither a valid nor a running run."""
    kept = {Slot(run.cell, run.repeat) for run in sweep.runs if run.run_id in going or is_valid(results, run)}
    return [slot for slot in slots(len(sweep.cells), sweep.repeats) if slot not in kept]


def is_valid(results: Results, run: SweepRun) -> bool:
    result = results.get(run.run_id)
    return result is not None and result.status == "valid"


def exit_code(sweep: Sweep, results: Results) -> int:
    """Return the exit code of a sweep. In slots without a valid run, the last run counts; failed outranks invalid."""
    codes = dict.fromkeys(slots(len(sweep.cells), sweep.repeats), EXIT_FAILED)
    for run in sweep.runs:
        slot, result = Slot(run.cell, run.repeat), results.get(run.run_id)
        if codes.get(slot) == EXIT_VALID:
            continue
        status = result.status if result else "failed"
        codes[slot] = {"valid": EXIT_VALID, "invalid": EXIT_INVALID, "failed": EXIT_FAILED}[status]
    return max(codes.values(), key=[EXIT_VALID, EXIT_INVALID, EXIT_FAILED].index, default=EXIT_VALID)
