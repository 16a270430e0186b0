"""This machine: its GPUs and what is wrong with them, the launcher, the environments, Slurm's commands.

    python launch/doctor.py machine
    python launch/doctor.py machine --json

What needs hardware is `not checked` without it, never `ok`. Exit code 3: something fails.
"""

from launch.cli.command import refuse_more
from launch.preflight.machine import report
from launch.terminal.output import answer


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/doctor.py machine")
    data, text, code = report()
    answer(data, text)
    return code
