"""The runs of a folder that a subcommand is about, and the flags that choose them. Importing it defines the flags."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks.errors import RequestError
from benchmarks.history.filters import parse_condition
from benchmarks.runs.runfolder import BENCHMARK
from launch.terminal.run_index import open_index, say_problems

if TYPE_CHECKING:
    from benchmarks.history.index import Index
    from benchmarks.runs.finished_run import FinishedRun

HEADING = "Which runs"
DEFAULT_RUNS = "results"

OUTPUT_DIR = flags.DEFINE_string("output_dir", DEFAULT_RUNS, "The folder with the runs.")
WHERE = flags.DEFINE_multi_string("where", [], "Which of them, such as dtype=bf16,fp8 or gpus>=64; all must hold.")
NEWEST = flags.DEFINE_integer("newest", None, "The newest N of them alone.", lower_bound=1)


def file_and_runs(arguments: list[str], command: str) -> tuple[Path, list[str]]:
    """The file to write and the runs that were named; where none was, some must be chosen."""
    usage = f"python launch/report.py {command} FILE RUN...; or --newest=20 or --where=KEY=VALUE instead"
    if not arguments or not arguments[0]:
        raise RequestError("which file is to be written?", next_command=usage)
    chosen = bool(WHERE.value or NEWEST.value)
    if bool(arguments[1:]) == chosen:
        raise RequestError(
            "runs are named, or chosen with --where: not both" if chosen else "which runs?", next_command=usage
        )
    return Path(arguments[0]), arguments[1:]


def all_runs() -> Path:
    return folder_of(OUTPUT_DIR.value)


def folder_of(name: str) -> Path:
    """An empty variable of a shell script: all runs are not what was asked for."""
    if not name:
        raise RequestError("the folder of the runs is empty text", next_command=f"{DEFAULT_RUNS}, or another folder")
    return Path(name)


def fitting(folder: Path) -> "list[FinishedRun]":
    """The runs that fit, with a result or without; what was left out is said."""
    conditions = [parse_condition(text) for text in WHERE.value]
    index = index_of(folder)
    say_problems(index)
    entries = index.select(conditions, NEWEST.value)
    if not entries:
        raise RequestError(
            "no run fits",
            where=" ".join(f"--where='{text}'" for text in WHERE.value) or str(folder),
            next_command=f"python launch/report.py runs {folder}     (lists them)",
        )
    return entries


def index_of(folder: Path, *, rebuild: bool = False) -> "Index":
    if (folder / BENCHMARK).is_file():
        run = Path(os.path.realpath(folder))  # unlike resolve() it takes a link that leads to itself
        raise RequestError(
            "this is a run itself; a folder that holds runs is needed",
            where=str(folder),
            next_command=f"python launch/report.py runs {run.parent} --where=run={run.name}",
        )
    return open_index(folder, rebuild)


def no_result(what: str, place: Path) -> RequestError:
    return RequestError(
        what,
        where=str(place),
        why="it trains, waits in a queue, or was cut off",
        next_command=f"python launch/status.py {place}, or choose with --where=status=valid,invalid,failed",
    )
