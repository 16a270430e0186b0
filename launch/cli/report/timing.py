"""A row for each training log below some folders: step time, its deviation, TFLOPS per GPU.

    python launch/report.py timing DIR                          of the logs below DIR, steps 35 to 44
    python launch/report.py timing --window=steady DIR FILE     of the steady steps

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


def main(argv: list[str]) -> int:
    window_rule.check_rule(WINDOW.value)
    paths, unlisted = timing_table.find_logs([Path(name) for name in argv[1:] or [DEFAULT_FOLDER]])
    formats = all_log_formats()
    rows = [timing_table.row_of(path, WINDOW.value, formats) for path in tracked(paths, "reading logs", len(paths))]
    timings = timing_table.as_data([*rows, *unlisted], WINDOW.value)
    answer(timings, lambda: timing_table.as_table(timings))
    return EXIT_VALID
