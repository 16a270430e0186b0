"""The runs of a folder, all or those that fit, as a table, csv or json.

    python launch/report.py runs                                                 of ./results
    python launch/report.py runs FOLDER --where=model=llama2_70b --where='gpus>=64' --newest=10
    python launch/report.py runs --format=csv
    python launch/report.py runs --rebuild_index                                 read every run again

docs/history.md lists the keys of --where.
"""

from absl import flags

from benchmarks.history import exports
from launch.cli import refuse_more
from launch.command_line.report import choice
from launch.reports import run_reports

FORMAT = flags.DEFINE_enum("format", "table", list(exports.FORMATS), "The shape of the list.")
REBUILD_INDEX = flags.DEFINE_boolean("rebuild_index", False, "Forget what is known of the runs, and read all again.")
flags.adopt_module_key_flags(choice)


def main(argv: list[str]) -> int:
    refuse_more(argv[2:], "python launch/report.py runs FOLDER")
    folder = choice.folder_of(argv[1] if argv[1:] else choice.DEFAULT_RUNS)
    return run_reports.listing(
        folder, choice.WHERE.value, choice.NEWEST.value, FORMAT.value, rebuild=REBUILD_INDEX.value
    )
