"""A workflow of GitHub Actions that runs a suite every night."""

import shlex
from pathlib import Path

from benchmarks.errors import RequestError
from launch.campaigns.nights.installing import Change, Timetable, file_change

TEMPLATE = """\
# One night of Stepmark's suite {suite}. Written by launch/nightly.py --install=github; do not edit.
# Runners that GitHub lends differ from night to night, and every other machine starts a new baseline: take a runner
# of your own (self-hosted). The time is UTC.
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
        env:
          STEPMARK_WEBHOOK: ${{{{ secrets.STEPMARK_WEBHOOK }}}}
      - if: always()
        uses: actions/upload-artifact@v4
        with:
          name: stepmark-{suite}
          path: |
            results/nights/{suite}
            {junit}
"""
JUNIT = "stepmark-junit.xml"


def change(table: Timetable, *, install: bool) -> Change:
    path = _root() / ".github" / "workflows" / f"stepmark-{table.suite}.yml"
    return file_change(path, text(table) if install else None)


def text(table: Timetable) -> str:
    words = [word for word in table.words if not word.startswith(("--output_dir", "--junit", "--webhook"))]
    words += ["--output_dir=results", f"--junit={JUNIT}"]
    flags = "\n".join(f"          {shlex.quote(word)}" for word in words)
    return TEMPLATE.format(suite=table.suite, hour=table.hour, minute=table.minute, flags=flags, junit=JUNIT)


def _root() -> Path:
    """The checkout that the command is typed in: its repository is the one whose workflows run."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / ".git").exists():
            return folder
    raise RequestError(
        "this is no checkout of a repository",
        where=str(here),
        why="a workflow lies in .github/workflows of the repository whose actions run it",
        next_command="type it in the checkout",
    )
