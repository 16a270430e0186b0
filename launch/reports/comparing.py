"""What compare.py is asked for -> the runs of both sides, read from their folders, and the earlier runs there."""

import re
import shlex
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from benchmarks import files
from benchmarks.comparing.runs import Chosen, ComparedRun, PairPlace, read_run
from benchmarks.errors import RequestError, closest
from benchmarks.history.filters import KEYS, Condition, parse_condition
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.runfolder import BENCHMARK, RunFolder
from benchmarks.runs.short_names import short_names
from benchmarks.sweeps.sweep import Sweep
from launch.reports.run_index import open_index, say_problems
from launch.slurm.run_states import find_run, find_runs

if TYPE_CHECKING:
    from benchmarks.history.index import Index

CONDITION = re.compile(r"\s*[A-Za-z_]\w*\s*(=|!=|<=|>=|<|>)")
JOINTS = re.compile(r"[,+\s]+")
SWEEPS = "sweep-*.json"
EXAMPLE = "python launch/compare.py 'gpus>=64,dtype=bf16' 'gpus>=64,dtype=fp8'"


class Sides:
    """Finds runs by what was typed. The index over many runs is opened where something needs it."""

    def __init__(self, output_dir: Path) -> None:
        self._output_dir = output_dir
        self._folders: set[Path] = set()  # that runs of the two sides lie in
        self.short: dict[str, str] = {}  # run -> as much of its name as no other run there has

    def chosen(self, a: str, b: str) -> tuple[Chosen, Chosen]:
        found = (self._side(a), self._side(b))
        names = [name for side in found for name in (*(run.name for run in side.runs), *side.left_out)]
        self.short = short_names(names, {run.run_id for folder in self._folders for run in find_runs(folder)})
        one, other = (
            side._replace(runs=[run._replace(short=self.short[run.name]) for run in side.runs]) for side in found
        )
        sides = (one, other)
        places = [{Path(run.path).resolve(): run.short for run in side.runs} for side in sides]
        shared = [places[0][path] for path in sorted(places[0].keys() & places[1].keys())]
        if shared:
            more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
            apart = _apart((a, b), [len(own) > len(shared) for own in places])
            raise RequestError(
                f"on both sides: {shared[0]}{more}",
                why="a run does not differ from itself",
                next_command=again((a, b), apart) if apart else self.what_there_is(),
            )
        return sides

    def history(self) -> list[FinishedRun]:
        """All runs in the folders of the two sides; none where they can't be indexed, and that is said."""
        try:
            return [run for folder in sorted(self._folders) for run in open_index(folder).select([])]
        except (RequestError, OSError) as error:
            print(f"stepmark: earlier runs are not looked at: {error}", file=sys.stderr)
            return []

    def what_there_is(self) -> str:
        """The command that lists the runs which could be compared."""
        folder = min(self._folders, default=self._output_dir)
        shown = self._output_dir if folder == self._output_dir.resolve() else folder
        return f"python launch/report.py runs {shlex.quote(str(shown))}"

    def meant(self, *typed: str) -> list[str]:
        """Both sides, with near values that runs have for those that none has; empty where that changes nothing."""
        found = [self._with_known_values(text) if is_filter(text) else text for text in typed]
        return found if found != [*typed] and len({*found}) == len(found) else []

    def _with_known_values(self, text: str) -> str:
        conditions = conditions_of(text)
        meant = [
            replace(one, values=[self._known(one.key, value) for value in one.values]) if one.operator == "=" else one
            for one in conditions
        ]
        return text if meant == conditions else ",".join(one.text for one in meant)

    def _known(self, key: str, value: str) -> str:
        known = self._index.values(key) if KEYS[key].kind in ("word", "order", "any") else []
        return value if value in known else closest(value, known) or value

    def _side(self, text: str) -> Chosen:
        if is_filter(text):
            folders = [RunFolder(self._output_dir / run.path) for run in self._index.select(conditions_of(text))]
        else:
            folders = [folder for name in text.split(",") for folder in self._named(name.strip())]
        unique = {folder.path.resolve(): folder for folder in folders}
        parents = {path.parent for path in unique}
        self._folders |= parents
        pairs = _pair_places(parents)
        runs: list[ComparedRun] = []
        left_out: dict[str, str] = {}
        for folder in unique.values():
            try:
                run = read_run(folder)
                runs.append(run._replace(pair=pairs.get(run.name)))
            except RequestError as error:
                left_out[folder.run_id] = "; ".join(filter(None, (error.what, error.next_command)))
        return Chosen(label=text, runs=runs, left_out=left_out)

    def _named(self, name: str) -> list[RunFolder]:
        """A run, or all runs of a folder."""
        found = find_runs(Path(name)) if Path(name).is_dir() else []
        if not found and "/" in name and not (Path(name) / BENCHMARK).is_file():
            raise RequestError(
                f"'{name}' is no run's folder, and none with runs", where=str(Path(name).absolute()),
                next_command=self.what_there_is(),
            )  # fmt: skip
        return found or [find_run(name, self._output_dir)]

    @cached_property
    def _index(self) -> "Index":
        index = open_index(self._output_dir)
        say_problems(index)  # a run that can't be read may be one that was meant
        return index


def is_filter(text: str) -> bool:
    """Whether a side is conditions; a folder that is called so is a run all the same."""
    return CONDITION.match(text) is not None and not (Path(text) / BENCHMARK).is_file()


def again(typed: Sequence[str], instead: Sequence[str]) -> str:
    """The same command with other sides."""
    meant = dict(zip(typed, instead, strict=True))
    return f"python launch/compare.py {shlex.join(meant.get(word, word) for word in sys.argv[1:])}"


def _apart(typed: tuple[str, str], others: Sequence[bool]) -> list[str]:
    """One side without what the other is; `others`: whether that leaves it a run. Empty where it does not."""
    for place in (0, 1):
        text, other = typed[place], typed[1 - place]
        conditions = conditions_of(other) if is_filter(text) and is_filter(other) else []
        if others[place] and len(conditions) == 1 and conditions[0].operator == "=":
            without = f"{text},{replace(conditions[0], operator='!=').text}"
            return [without, other] if place == 0 else [other, without]
    return []


def conditions_of(text: str) -> list[Condition]:
    """ "dtype=bf16,fp8,commit=abc" -> two conditions: a word without a sign is one more value of that before it."""
    found: list[str] = []
    for word in JOINTS.split(text.strip()):
        if CONDITION.match(word) or not found:
            found.append(word)
        else:
            found[-1] += f",{word}"
    return [parse_condition(condition, flag="", example=EXAMPLE) for condition in found]


def _pair_places(folders: set[Path]) -> dict[str, PairPlace]:
    """Which run belongs to which repeat of which sweep; a record that can't be read pairs nothing."""
    found: dict[str, PairPlace] = {}
    for path in sorted(path for folder in folders for path in folder.glob(SWEEPS)):
        try:
            sweep = files.read_json(path, Sweep)
        except (OSError, ValueError):
            continue
        found |= {run.run_id: PairPlace(sweep.sweep_id, run.cell, run.repeat) for run in sweep.runs}
    return found
