"""A row for each training log below some folders: step time, its deviation, TFLOPS per GPU.

    python launch/report.py timing                              of ./experiments, steps 35 to 44
    python launch/report.py timing --window=35-44 DIR           of the logs below DIR
    python launch/report.py timing --format=csv DIR FILE        the same for a spreadsheet

The table of `parse_train_timing.sh`: mean and sample standard deviation (n - 1) of the step times, and of
TFLOPS_per_GPU where the log prints it. Every file below DIR is counted: incomplete runs with the step they reached,
failed runs with their reason, and files that are no training log. A run
folder of Stepmark's is one row, of its own steps.jsonl; of a profiled or invalid one without figures. Exit code 0:
the report was made, also when runs in it failed.
"""

from absl import flags

from benchmarks.configs import Configs
from benchmarks.diagnosis.symptoms import read_symptoms
from benchmarks.errors import EXIT_VALID
from benchmarks.logs import timing_table
from benchmarks.logs.known_formats import all_log_formats
from benchmarks.measuring import window
from launch.command_line.output import answer
from launch.command_line.progress import tracked
from launch.reports.log_folder import LogReader, find_files

DEFAULT_FOLDER = "experiments"

WINDOW = flags.DEFINE_string(
    "window", timing_table.DEFAULT_WINDOW, "Which steps count: A-B (as printed in the log), last, or steady."
)
FORMAT = flags.DEFINE_enum("format", "table", list(timing_table.FORMATS), "The shape of the report.")
FULL_NAMES = flags.DEFINE_boolean("full_names", False, "Name each log by its path instead of its experiment.")
flags.DEFINE_alias("full-names", "full_names")


def main(argv: list[str]) -> int:
    window.check_rule(WINDOW.value)
    files = find_files(argv[1:] or [DEFAULT_FOLDER])
    reader = LogReader(files, WINDOW.value, read_symptoms(Configs().root), all_log_formats())
    rows = sorted(tracked(reader.rows(), "reading logs", reader.to_read), key=lambda row: row.path)
    named = timing_table.named(rows, FULL_NAMES.value)
    data = timing_table.as_data(named, WINDOW.value)
    answer(data, lambda: timing_table.FORMATS[FORMAT.value](named, WINDOW.value))
    return EXIT_VALID
