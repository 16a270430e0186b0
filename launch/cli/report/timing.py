"""A row for each training log below some folders: step time, its deviation, TFLOPS per GPU.

    python launch/report.py timing DIR                          of the logs below DIR, steps 35 to 44
    python launch/report.py timing --window=steady DIR FILE     of the steady steps
    python launch/report.py timing --format=csv DIR             the same for a spreadsheet

The table of `parse_train_timing.sh`: mean and sample standard deviation (n - 1) of the step times, and of
TFLOPS_per_GPU if the log prints it. An incomplete run is listed with the step that it reached. `doctor.py logs` shows
why a run ended, `report.py runs` the runs of Stepmark. Exit code 0: the report was made, also if runs failed.
"""

from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_VALID
from benchmarks.logs import timing_table
from benchmarks.logs.known_formats import all_log_formats
from benchmarks.request import window_rule
from launch.terminal.output import answer
from launch.terminal.progress import tracked

DEFAULT_FOLDER = "experiments"  # as of parse_train_timing.sh

WINDOW = flags.DEFINE_string(
    "window", timing_table.DEFAULT_WINDOW, "Which steps count: A-B (as printed in the log), last, or steady."
)
FORMAT = flags.DEFINE_enum("format", "table", list(timing_table.FORMATS), "The shape of the report.")


def main(argv: list[str]) -> int:
    window_rule.check_rule(WINDOW.value)
    found = timing_table.find_logs([Path(name) for name in argv[1:] or [DEFAULT_FOLDER]])
    paths, formats = tracked(found.paths, "reading logs", len(found.paths)), all_log_formats()
    rows = [timing_table.row_of(path, WINDOW.value, formats) for path in paths]
    timings = timing_table.as_data([*rows, *found.unlisted], WINDOW.value, found.run_folders)
    answer(timings, lambda: timing_table.FORMATS[FORMAT.value](timings))
    return EXIT_VALID
