"""Where the time of a step goes, from a profiler's trace (docs/profiling.md).

python launch/report.py trace results/RUN                   a profiled run, or a profiler's file
python launch/report.py trace results/RUN --json
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.runs.find_runs import place_of
from benchmarks.trace.report import trace_report
from benchmarks.trace.tables import report_text
from launch.cli.command import only_argument
from launch.terminal.output import answer

OUTPUT_DIR = flags.DEFINE_string("output_dir", "results", "The folder with the runs.")
EXPORT_SECONDS = 900


def main(argv: list[str]) -> int:
    place = place_of(only_argument(argv[1:], "python launch/report.py trace results/RUN"), Path(OUTPUT_DIR.value))
    with tempfile.TemporaryDirectory(prefix="stepmark-nsys-") as room:  # a run's raw files are sealed
        found = trace_report(place, lambda report: _export(report, Path(room)))
    answer(found, lambda: report_text(found))
    return EXIT_VALID


def _export(report: Path, room: Path) -> Path:
    """An SQLite file of a report of Nsight Systems."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise RequestError("listed only, nsys is not on PATH (nsys-ui opens it)")
    database = room / f"{report.stem}.sqlite"
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(report)]
    print(f"exporting {report.name} ...", file=sys.stderr)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=EXPORT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(f"nsys export did not come to an end: {error}") from error
    if done.returncode != 0 or not database.is_file():
        last = (done.stderr or done.stdout).strip().splitlines()
        raise RequestError(f"nsys export failed ({done.returncode}): {last[-1] if last else 'no message'}")
    return database
