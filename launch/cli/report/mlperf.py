"""MLPerf's checkers and more on MLLOG files; exit code 3 if they fail (docs/mlperf_logs.md).

python launch/report.py mlperf DIR                          a folder of logs, a job's output, or runs of Stepmark
python launch/report.py mlperf DIR --ruleset=5.1.0 --json
"""

from pathlib import Path

from absl import flags

from launch.cli.command import only_argument
from launch.mlperf.judging import report

RULESET = flags.DEFINE_string(
    "ruleset", None, "The rules of MLPerf Training, such as 5.1.0; without it, those of the log's own round."
)


def main(argv: list[str]) -> int:
    return report(Path(only_argument(argv[1:], "python launch/report.py mlperf DIR")), RULESET.value)
