"""MLPerf's checkers and more on MLLOG files; exit code 3 where they fail (docs/mlperf_logs.md).

python launch/report.py mlperf DIR                          a folder of logs, a job's output, or a submission
python launch/report.py mlperf DIR --ruleset=5.1.0 --json
python launch/report.py mlperf DIR --package=OUT/ORG --system=FILE.json     make a submission's folder first
"""

from pathlib import Path

from absl import flags

from launch.cli.command import only_argument
from launch.mlperf.judging import report

RULESET = flags.DEFINE_string(
    "ruleset", None, "The rules of MLPerf Training, such as 5.1.0; without it, those of the log's own round."
)
PACKAGE = flags.DEFINE_string("package", None, "Make a submission's folder (OUT/ORG) of the runs, and judge that.")
SYSTEM = flags.DEFINE_string("system", None, "The description of the machines, a JSON file, for --package.")
IMPLEMENTATION = flags.DEFINE_string("implementation", None, "The folder with the code that ran, for --package.")


def main(argv: list[str]) -> int:
    place = Path(only_argument(argv[1:], "python launch/report.py mlperf DIR"))
    made, system, code = (Path(flag.value) if flag.value else None for flag in (PACKAGE, SYSTEM, IMPLEMENTATION))
    return report(place, RULESET.value, made, system, code)
