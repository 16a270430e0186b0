"""Earlier runs, from the index of the folder of runs and of those that --history names."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.errors import RequestError
from benchmarks.gate.series import Series, series
from benchmarks.gate.suites import Cell
from benchmarks.gate.values import Suite
from benchmarks.history.entry import Entry
from benchmarks.history.filters import parse_condition
from benchmarks.history.index import Index
from benchmarks.history.reading import read_entry
from benchmarks.runs.runfolder import RunFolder
from launch.reports.run_index import open_index

MOST_SHOWN = 5


class Earlier:
    """Asked cell by cell; every index is opened once."""

    def __init__(self, output_dir: Path, history: Sequence[Path], suite: Suite) -> None:
        self._suite = suite
        self._output_dir = output_dir
        self._own = open_index(output_dir)
        self._replayed = [open_index(folder) for folder in history if folder.resolve() != output_dir.resolve()]

    def series(self, tonight: Entry, cell: Cell) -> Series:
        own = self._own.select([parse_condition(f"suite={self._suite.name}"), parse_condition(f"cell={cell.name}")])
        same = [parse_condition(f"backend={tonight.backend}"), parse_condition(f"model={tonight.model}")]
        replayed = [entry for index in self._replayed for entry in index.select(same)]
        return series(tonight, self._suite.name, cell.name, own, replayed, self._suite.baseline_across)

    def entry(self, run_id: str) -> Entry:
        """The run as its folder has it now. RequestError: it cannot be read."""
        return read_entry(RunFolder(self._output_dir / run_id), run_id)

    def has(self, run_id: str) -> bool:
        return (self._output_dir / run_id).is_dir()

    def places(self) -> list[str]:
        return [str(index.output_dir) for index in (self._own, *self._replayed)]

    def notes(self) -> list[str]:
        return [note for index in (self._own, *self._replayed) for note in _notes_of(index)]


def _notes_of(index: Index) -> list[str]:
    problems = [f"{problem.folder}: {problem.reason}" for problem in index.problems()]
    more = [f"and {len(problems) - MOST_SHOWN} more"] if len(problems) > MOST_SHOWN else []
    return [*index.notes, *(f"{index.output_dir}: left out: {text}" for text in [*problems[:MOST_SHOWN], *more])]


def check_folders(history: Sequence[Path]) -> None:
    """Before anything is started: a mistyped folder would be a night without history."""
    for folder in history:
        if not folder.is_dir():
            raise RequestError("there is no such folder of runs", where=f"--history={folder}")
