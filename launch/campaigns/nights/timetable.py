"""What starts a suite every night, as text to paste: crontab, Slurm's scrontab, systemd's units, a GitHub workflow.

Nothing is installed and nothing is written. Variables that hold a secret are left out, and named.
"""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RequestError
from benchmarks.secret_rules import why_secret

KINDS = ("cron", "scrontab", "systemd", "github")
# What a bare environment lacks. PATH, as sbatch and srun may lie anywhere.
CARRIED = (
    "PATH", "STEPMARK_HOME", "STEPMARK_CONFIGS", "XDG_CACHE_HOME", "PYTHONPATH", "SLURM_CONF", "PIP_FIND_LINKS",
    "TZ", "LANG",
)  # fmt: skip
LAUNCHER = Path(__file__).resolve().parents[2] / "nightly.py"
LONGEST_LINE = 990  # cron cuts a line at 1000 characters
# A launcher waits for its jobs: it needs little of its node, and the time of all its runs one after the other.
SCRON_OPTIONS = ("--time=12:00:00", "--ntasks=1", "--cpus-per-task=1", "--requeue")
WORKFLOW = """\
# .github/workflows/stepmark-{suite}.yml: one night of Stepmark's suite {suite}. The time is UTC.
# Take a runner of your own (self-hosted): GitHub's differ from night to night, and each starts a new baseline.
name: stepmark {suite}
on:
  schedule:
    - cron: "{minute} {hour} * * *"
  workflow_dispatch: {{}}
concurrency:
  group: stepmark-{suite}
jobs:
  night:
    runs-on: self-hosted
    timeout-minutes: 720
    steps:
      - uses: actions/checkout@v4
        with:
          clean: false  # the results of earlier nights are the history
      - run: test -x .venv/bin/python || (python3 -m venv .venv && .venv/bin/python -m pip install -e .)
      - run: >-
          .venv/bin/python launch/nightly.py
{flags}
      - if: always()
        uses: actions/upload-artifact@v4
        with:
          name: stepmark-{suite}
          path: |
            results/nights/{suite}
            {junit}
"""
JUNIT = "stepmark-junit.xml"


class Timetable(NamedTuple):
    """A suite, once a night."""

    suite: str
    hour: int
    minute: int
    words: list[str]  # flags of launch/nightly.py, with absolute paths
    output_dir: Path


def time_of(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,2}):(\d\d)", text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise RequestError(
            f"--at={text}: HH:MM is expected", where="--at", next_command="--at=02:30, of this machine's clock"
        )
    return int(match[1]), int(match[2])


def timetable_text(kind: str, table: Timetable, environment: Mapping[str, str] = os.environ) -> str:
    if kind == "github":
        return _workflow(table)
    left_out = [
        f"# ${name} is left out: {why}. Nights run without it."
        for name in CARRIED
        if (why := why_secret(environment.get(name, "")))
    ]
    text = _units(table, environment) if kind == "systemd" else _cron(kind, table, environment)
    return "\n".join([*left_out, text])


def _command(table: Timetable, environment: Mapping[str, str]) -> str:
    """The whole night for /bin/sh: its variables, its folder, its log."""
    carried = {name: environment[name] for name in CARRIED if environment.get(name)}
    variables = [f"{name}={value}" for name, value in carried.items() if not why_secret(value)]
    broken = next((word for word in [*variables, *table.words] if "\n" in word), None)
    if broken is not None:
        raise RequestError("a line break, which no timetable can hold", where=repr(broken))
    night = shlex.join(["env", *variables, sys.executable, str(LAUNCHER), *table.words])
    folder = table.output_dir / "nights" / table.suite
    return f"mkdir -p {shlex.quote(str(folder))} && {night} >>{shlex.quote(str(folder / 'launcher.log'))} 2>&1"


def _cron(kind: str, table: Timetable, environment: Mapping[str, str]) -> str:
    command = _command(table, environment)
    options = [f"#SCRON {option}" for option in (f"--job-name=stepmark-{table.suite}", *SCRON_OPTIONS)]
    # In cron an unescaped % ends the line.
    line = f"{table.minute} {table.hour} * * * " + (command.replace("%", r"\%") if kind == "cron" else command)
    if kind == "cron" and len(line) > LONGEST_LINE:
        raise RequestError(
            f"the line has {len(line)} characters, and cron cuts it at 1000",
            why="it holds the command with all of its paths and the variables that it needs",
            next_command="--print=systemd, or PATH=/usr/bin:/bin python launch/nightly.py ...",
        )
    return "\n".join([*(options if kind == "scrontab" else []), line])


def _units(table: Timetable, environment: Mapping[str, str]) -> str:
    name = f"stepmark-nightly-{table.suite}"
    # One argument in a unit file: quoted, with what systemd would expand doubled.
    escaped = _command(table, environment).replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("%", "%%").replace("$", "$$")
    return f"""\
# ~/.config/systemd/user/{name}.service
[Unit]
Description=A night of Stepmark's suite {table.suite}

[Service]
Type=oneshot
ExecStart=/bin/sh -c "{escaped}"

# ~/.config/systemd/user/{name}.timer
[Unit]
Description=Stepmark's suite {table.suite}, every night

[Timer]
OnCalendar=*-*-* {table.hour:02d}:{table.minute:02d}:00
Persistent=true

[Install]
WantedBy=timers.target

# then: systemctl --user daemon-reload && systemctl --user enable --now {name}.timer
# without lingering it runs while you are logged in: loginctl enable-linger"""


def _workflow(table: Timetable) -> str:
    words = [word for word in table.words if not word.startswith(("--output_dir", "--junit"))]
    words += ["--output_dir=results", f"--junit={JUNIT}"]
    flags = "\n".join(f"          {shlex.quote(word)}" for word in words)
    return WORKFLOW.format(suite=table.suite, hour=table.hour, minute=table.minute, flags=flags, junit=JUNIT).rstrip()
