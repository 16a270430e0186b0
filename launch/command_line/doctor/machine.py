"""This machine: its GPUs and what is wrong with them, the launcher, the environments, Slurm's commands.

    python launch/doctor.py machine
    python launch/doctor.py machine --json

What needs hardware is `not checked` without it, never `ok`. Exit code 3: something fails.
"""

from absl import flags

from launch.cli import refuse_more
from launch.preflight.machine import report

JSON = flags.DEFINE_boolean("json", False, "Print the report as JSON.")


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/doctor.py machine")
    text, code = report(as_json=JSON.value)
    print(text)
    return code
