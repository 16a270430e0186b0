"""A row for each training log below some folders: step time, its deviation, TFLOPS per GPU.

    python launch/report.py timing DIR                          of the logs below DIR, steps 35 to 44
    python launch/report.py timing --window=steady RUN          of a run, by a part of its name too
    python launch/report.py timing --format=csv DIR FILE        the same for a spreadsheet

The table of `parse_train_timing.sh`: mean and sample standard deviation (n - 1) of the step times, and of
TFLOPS_per_GPU where the log prints it. Every file below DIR is counted: incomplete runs with the step they reached,
failed runs with their reason, and files that are no training log. A run
folder of Stepmark's is one row, of its own steps.jsonl; of a profiled or invalid one without figures. Exit code 0:
the report was made, also when runs in it failed.
"""

import shlex
from pathlib import Path

from absl import flags

from benchmarks.configs import Configs
from benchmarks.diagnosis.symptoms import read_symptoms
from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.logs import timing_table
from benchmarks.logs.known_formats import all_log_formats
from benchmarks.measuring import window
from launch.command_line.output import answer
from launch.command_line.progress import tracked
from launch.reports.log_folder import LogReader, find_files
from launch.slurm.run_states import place_of

DEFAULT_FOLDER = "experiments"  # as of parse_train_timing.sh

WINDOW = flags.DEFINE_string(
    "window", timing_table.DEFAULT_WINDOW, "Which steps count: A-B (as printed in the log), last, or steady."
)
OUTPUT_DIR = flags.DEFINE_string("output_dir", "results", "The folder with the runs.")
FORMAT = flags.DEFINE_enum("format", "table", list(timing_table.FORMATS), "The shape of the report.")
FULL_NAMES = flags.DEFINE_boolean("full_names", False, "Name each log by its path instead of its experiment.")
flags.DEFINE_alias("full-names", "full_names")


def main(argv: list[str]) -> int:
    window.check_rule(WINDOW.value)
    files = find_files([str(place_of(name, Path(OUTPUT_DIR.value))) for name in argv[1:]] or [_usual_folder()])
    reader = LogReader(files, WINDOW.value, read_symptoms(Configs().root), all_log_formats())
    rows = sorted(tracked(reader.rows(), "reading logs", reader.to_read), key=lambda row: row.path)
    named = timing_table.named(rows, FULL_NAMES.value)
    data = timing_table.as_data(named, WINDOW.value)
    answer(data, lambda: timing_table.FORMATS[FORMAT.value](named, WINDOW.value))
    return EXIT_VALID


def _usual_folder() -> str:
    if not Path(DEFAULT_FOLDER).is_dir():
        runs = OUTPUT_DIR.value if Path(OUTPUT_DIR.value).is_dir() else "DIR"
        raise RequestError(
            f"which folder of logs? There is no '{DEFAULT_FOLDER}' here, which is read where none is named",
            where=str(Path.cwd()),
            next_command=f"python launch/report.py timing {shlex.quote(runs)}",
        )
    return DEFAULT_FOLDER
