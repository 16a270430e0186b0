"""Where the time of a step goes, from a profiler's trace (docs/profiling.md).

python launch/report.py trace results/RUN                   a profiled run, or a profiler's file
python launch/report.py trace results/RUN --json
"""

import shutil
from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_VALID
from benchmarks.runs.find_runs import place_of
from benchmarks.trace.tables import report_text
from launch.cli import only_argument
from launch.command_line.output import answer
from launch.reports import tracing

OUTPUT_DIR = flags.DEFINE_string("output_dir", "results", "The folder with the runs.")


def main(argv: list[str]) -> int:
    place = only_argument(argv[1:], "python launch/report.py trace results/RUN")
    found = tracing.trace_report(place_of(place, Path(OUTPUT_DIR.value)))
    answer(found, lambda: report_text(found, shutil.get_terminal_size().columns))
    return EXIT_VALID
