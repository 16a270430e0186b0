"""What compare.py is asked for -> the runs of both sides, read from their folders; the earlier runs beside them."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.comparing.runs import Chosen, ComparedRun, PairPlace, read_run
from benchmarks.comparing.text import markdown_text, table_text
from benchmarks.comparing.values import Comparison
from benchmarks.errors import RequestError
from benchmarks.history.filters import Condition, parse_condition
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.runfolder import BENCHMARK, RunFolder
from benchmarks.sweeps.sweep import Sweep
from benchmarks.values import json_text
from launch.slurm.run_states import find_run

LARGEST_MARGIN = 100.0
CONDITION = re.compile(r"\s*[A-Za-z_]\w*\s*(=|!=|<=|>=|<|>)")
JOINTS = re.compile(r"[,+\s]+")
SWEEPS = "sweep-*.json"


class Sides:
    """Finds runs by what was typed. The index over many runs is opened where something needs it."""

    def __init__(self, output_dir: Path, where: Sequence[str] = (), newest: int | None = None) -> None:
        if newest is not None and newest < 1:
            raise RequestError(f"--newest={newest}: it must be 1 or more", where="--newest")
        self._output_dir = output_dir
        self._where = [parse_condition(text) for text in where]
        self._newest = newest
        self._folders: set[Path] = set()  # that runs of the two sides lie in

    def chosen(self, a: str, b: str) -> tuple[Chosen, Chosen]:
        sides = [self._side(text) for text in (a, b)]
        self._refuse_shared(sides)
        self._refuse_unused_conditions(a, b)
        return sides[0], sides[1]

    def history(self) -> list[FinishedRun]:
        """All runs that lie beside those of the two sides; none where they can't be indexed, and that is said."""
        found: list[FinishedRun] = []
        for folder in sorted(self._folders):
            try:
                found += self._entries(folder, [], None)
            except (RequestError, OSError) as error:
                print(f"stepmark: earlier runs are not looked at: {error}", file=sys.stderr)
        return found

    def _side(self, text: str) -> Chosen:
        if is_filter(text):
            folders = self._fitting(text)
        else:
            names = list(dict.fromkeys(name.strip() for name in text.split(",")))
            if "" in names:
                raise RequestError(f"'{text}': a name in the list is empty", where="launch/compare.py")
            folders = [find_run(name, self._output_dir) for name in names]
        unique = {folder.path.resolve(): folder for folder in folders}
        self._folders |= {path.parent for path in unique}
        return self._read(text, list(unique.values()))

    def _fitting(self, text: str) -> list[RunFolder]:
        conditions = [*conditions_of(text), *self._where]
        entries = self._entries(self._output_dir, conditions, self._newest)
        return [RunFolder(self._output_dir / entry.path) for entry in entries]

    @staticmethod
    def _entries(folder: Path, where: Sequence[Condition], newest: int | None) -> list[FinishedRun]:
        from launch.reports.run_index import open_index, say_problems

        index = open_index(folder)
        if where:
            say_problems(index)  # a run that can't be read may be one that was meant
        return index.select(where, newest)

    def _read(self, text: str, folders: Sequence[RunFolder]) -> Chosen:
        runs: list[ComparedRun] = []
        left_out: dict[str, str] = {}
        pairs = _pair_places({folder.path.resolve().parent for folder in folders})
        for folder in folders:
            try:
                run = read_run(folder)
            except RequestError as error:
                left_out[folder.run_id] = error.what
                continue
            runs.append(run._replace(pair=pairs.get(run.name)))
        return Chosen(label=text, runs=runs, left_out=left_out)

    def _refuse_shared(self, sides: Sequence[Chosen]) -> None:
        places = [{Path(run.path).resolve(): run.name for run in side.runs} for side in sides]
        shared = [places[0][path] for path in sorted(places[0].keys() & places[1].keys())]
        if shared:
            more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
            raise RequestError(
                f"on both sides: {shared[0]}{more}",
                where="launch/compare.py",
                why="a run does not differ from itself",
                next_command="conditions that fit one side each, such as commit=... or tag=...",
            )

    def _refuse_unused_conditions(self, a: str, b: str) -> None:
        if (self._where or self._newest) and not any(map(is_filter, (a, b))):
            raise RequestError(
                "--where and --newest choose among runs, and both sides name theirs",
                where="--where",
                next_command="python launch/compare.py tag=before tag=after --where=KEY=VALUE",
            )


def is_filter(text: str) -> bool:
    """Whether a side is conditions; a folder that is called so is a run all the same."""
    return CONDITION.match(text) is not None and not (Path(text) / BENCHMARK).is_file()


def conditions_of(text: str) -> list[Condition]:
    """ "dtype=bf16,fp8,commit=abc" -> two conditions: a word without a sign is one more value of that before it."""
    found: list[str] = []
    for word in JOINTS.split(text.strip()):
        if CONDITION.match(word) or not found:
            found.append(word)
        else:
            found[-1] += f",{word}"
    return [parse_condition(condition) for condition in found]


def _pair_places(folders: set[Path]) -> dict[str, PairPlace]:
    """Which run belongs to which repeat of which sweep; a record that can't be read pairs nothing."""
    found: dict[str, PairPlace] = {}
    for folder in folders:
        for path in sorted(folder.glob(SWEEPS)):
            try:
                sweep = msgspec.json.decode(path.read_bytes(), type=Sweep)
            except (OSError, ValueError):
                continue
            found |= {run.run_id: PairPlace(sweep.sweep_id, run.cell, run.repeat) for run in sweep.runs}
    return found


def text_of(comparison: Comparison, form: str) -> str:
    if form == "json":
        return json_text(comparison)
    return (markdown_text(comparison) if form == "markdown" else table_text(comparison)) + "\n"


def refuse_folder(path: Path) -> None:
    """Before the work is done, not after it."""
    from launch.reports import html_pages

    html_pages.refuse_folder(path)


def write_page(comparison: Comparison, path: Path) -> None:
    from benchmarks.pages.comparison import comparison_part
    from benchmarks.pages.page import page
    from launch.reports import html_pages

    html_pages.write_page(page(comparison_part(comparison)), path)
    print(f"stepmark: {path}", file=sys.stderr)
