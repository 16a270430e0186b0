"""Is an archive as it was written, and does every result in it follow from its raw files?

python launch/report.py verify_archive FILE.tar.gz          exit code 3 where it is not
"""

from pathlib import Path

from launch.cli import only_argument
from launch.reports import run_reports


def main(argv: list[str]) -> int:
    return run_reports.verify_archive(Path(only_argument(argv[1:], "python launch/report.py verify_archive FILE")))
