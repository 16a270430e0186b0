"""Find and read the runs of both sides from the arguments of compare.py, and earlier runs in the same folders."""

import re
import shlex
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks import files
from benchmarks.compare.runs import Chosen, PairPlace, read_side
from benchmarks.errors import RequestError
from benchmarks.history.filters import Condition, parse_condition
from benchmarks.runs.find_runs import find_run, find_runs
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.runfolder import BENCHMARK, RunFolder

if TYPE_CHECKING:
    from benchmarks.history.index import Index

CONDITION = re.compile(r"\s*[A-Za-z_]\w*\s*(=|!=|<=|>=|<|>)")
JOINTS = re.compile(r"[,+\s]+")
SWEEPS = "sweep-*.json"
EXAMPLE = "python launch/compare.py 'gpus>=64,dtype=bf16' 'gpus>=64,dtype=fp8'"


class _SweepRun(msgspec.Struct, frozen=True):
    run_id: str
    cell: int
    repeat: int


class _Sweep(msgspec.Struct, frozen=True):
    """The part of a sweep's record that shows which of its runs form pairs."""

    sweep_id: str
    runs: list[_SweepRun]


class Sides:
    """Find the runs of both sides. `open_index` opens the index of a folder; it is called only if it is needed."""

    def __init__(self, output_dir: Path, open_index: Callable[[Path], "Index"]) -> None:
        self._output_dir = output_dir
        self._open_index = open_index
        self._folders: set[Path] = set()  # the folders in which the runs of the two sides are

    def chosen(self, a: str, b: str) -> tuple[Chosen, Chosen]:
        one, other = self._side(a), self._side(b)
        paths = [{Path(run.path).resolve(): run.name for run in side.runs} for side in (one, other)]
        if shared := [paths[0][path] for path in paths[0].keys() & paths[1].keys()]:
            raise RequestError(
                f"{shared[0]} is on both sides",
                why="a run cannot be compared with itself",
                next_command=self.list_command(),
            )
        return one, other

    def history(self) -> list[FinishedRun]:
        """Return all runs in the folders of the two sides. If indexing fails, print a message and return no runs."""
        try:
            return [run for folder in sorted(self._folders) for run in self._open_index(folder).select([])]
        except (RequestError, OSError) as error:
            print(f"stepmark: earlier runs are ignored: {error}", file=sys.stderr)
            return []

    def list_command(self) -> str:
        """Return the command that lists the runs that can be compared."""
        return f"python launch/report.py runs {shlex.quote(str(min(self._folders, default=self._output_dir)))}"

    def _side(self, text: str) -> Chosen:
        if is_filter(text):
            folders = [RunFolder(self._output_dir / run.path) for run in self._index.select(conditions_of(text))]
            if not folders:
                what, where = f"no run matches {text}", str(self._output_dir)
                raise RequestError(what, where=where, next_command=self.list_command())
        else:
            folders = [folder for name in text.split(",") for folder in self._named(name.strip())]
        parents = {folder.path.resolve().parent for folder in folders}
        self._folders |= parents
        return read_side(text, folders, _pair_places(parents))

    def _named(self, name: str) -> list[RunFolder]:
        """Return the run with this name, or all runs in the folder with this name."""
        found = find_runs(Path(name)) if Path(name).is_dir() else []
        if not found and "/" in name and not (Path(name) / BENCHMARK).is_file():
            raise RequestError(
                f"'{name}' is neither a run nor a folder of runs", where=str(Path(name).absolute()),
                next_command=self.list_command(),
            )  # fmt: skip
        return found or [find_run(name, self._output_dir)]

    @cached_property
    def _index(self) -> "Index":
        return self._open_index(self._output_dir)


def is_filter(text: str) -> bool:
    """Return whether the argument for a side is a list of conditions and not the name of a run folder."""
    return CONDITION.match(text) is not None and not (Path(text) / BENCHMARK).is_file()


def conditions_of(text: str) -> list[Condition]:
    """Return the conditions in a text. "dtype=bf16,fp8,commit=abc" has two conditions, the first with two values."""
    found: list[str] = []
    for word in JOINTS.split(text.strip()):
        if CONDITION.match(word) or not found:
            found.append(word)
        else:
            found[-1] += f",{word}"
    return [parse_condition(condition, flag="", example=EXAMPLE) for condition in found]


def _pair_places(folders: set[Path]) -> dict[str, PairPlace]:
    """Return the sweep, cell and repeat of each run. Sweep records that cannot be read are ignored."""
    found: dict[str, PairPlace] = {}
    for path in sorted(path for folder in folders for path in folder.glob(SWEEPS)):
        try:
            sweep = files.read_json(path, _Sweep)
        except (OSError, ValueError):
            continue
        found |= {run.run_id: PairPlace(sweep.sweep_id, run.cell, run.repeat) for run in sweep.runs}
    return found
