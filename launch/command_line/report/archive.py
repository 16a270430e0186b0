"""Runs as one file, with a checksum of every file in it.

python launch/report.py archive FILE.tar.gz RUN...
python launch/report.py archive FILE.tar.gz --where=model=llama2_70b --runs=FOLDER
"""

from absl import flags

from launch.command_line.report import choice
from launch.reports import run_reports

RUNS = flags.DEFINE_string("runs", choice.DEFAULT_RUNS, "The folder with the runs.")
flags.adopt_module_key_flags(choice)


def main(argv: list[str]) -> int:
    target, named = choice.file_and_runs(argv[1:], "archive")
    folder = choice.folder_of(RUNS.value)
    return run_reports.archive(target, named, folder, choice.WHERE.value, choice.NEWEST.value)
