"""The runs of a folder, all or those that fit, as a table, csv or json.

    python launch/report.py runs                                                 of ./results
    python launch/report.py runs FOLDER --where=model=llama2_70b --where='gpus>=64' --newest=10
    python launch/report.py runs RUN                                             one, by a part of its name too
    python launch/report.py runs --format=csv
    python launch/report.py runs --rebuild_index                                 read every run again

docs/history.md lists the keys of --where.
"""

import os
from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_VALID
from benchmarks.history import exports
from benchmarks.history.filters import parse_condition
from benchmarks.runs.find_runs import place_of
from benchmarks.runs.runfolder import BENCHMARK
from launch.cli.command import refuse_more
from launch.cli.report import choice
from launch.terminal.output import answer
from launch.terminal.run_index import say_problems

FORMAT = flags.DEFINE_enum("format", "table", list(exports.FORMATS), "The shape of the list.")
REBUILD_INDEX = flags.DEFINE_boolean("rebuild_index", False, "Forget what is known of the runs, and read all again.")
flags.adopt_module_key_flags(choice)


def main(argv: list[str]) -> int:
    refuse_more(argv[2:], "python launch/report.py runs FOLDER")
    all_runs = choice.all_runs()
    folder = place_of(str(choice.folder_of(argv[1])), all_runs) if argv[1:] else all_runs
    run = Path(os.path.realpath(folder)) if (folder / BENCHMARK).is_file() else None
    folder = run.parent if run else folder
    conditions = [parse_condition(text) for text in choice.WHERE.value]
    index = choice.index_of(folder, rebuild=REBUILD_INDEX.value)
    entries = index.select(conditions, choice.NEWEST.value)
    if run:
        entries = [entry for entry in entries if entry.path == run.name]
    found = exports.Listing(str(folder), conditions, entries, index.problems(), index.paths())
    answer(exports.as_data(found), lambda: exports.FORMATS[FORMAT.value](found))
    if not run or not entries:
        say_problems(index)
    return EXIT_VALID
