"""The checkers of mlperf-logging, asked of logs and folders. They run in processes of their own
(checker_process.py) and in a folder of their own: they write logs where they are started, and one of them
into what it judges.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.mlperf import package
from benchmarks.mlperf.checkers import Checker, CheckerResult, read_text

LONGEST_SECONDS = 600  # of a checker
PROGRAM = Path(__file__).with_name("checker_process.py")
NEEDS_SCIPY = ("rcp_checker", "package_checker")


class Task(NamedTuple):
    """One question to one checker."""

    checker: Checker
    arguments: tuple[str, ...]


def ask(tasks: Sequence[Task]) -> dict[Task, CheckerResult]:
    """What the checkers say. Those that need scipy run beside the others: its import takes longer than the checks."""
    package.folder()  # says what to install where there is none
    heavy = [task for task in tasks if task.checker in NEEDS_SCIPY]
    light = [task for task in tasks if task.checker not in NEEDS_SCIPY]
    with ThreadPoolExecutor(2) as lanes:
        return {task: result for answers in lanes.map(_ask, (heavy, light)) for task, result in answers.items()}


def _ask(tasks: Sequence[Task]) -> dict[Task, CheckerResult]:
    """In one process; a task that it does not live to answer is one without a verdict."""
    if not tasks:
        return {}
    asked = [{**task._asdict(), "longest_seconds": LONGEST_SECONDS} for task in tasks]
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        done = subprocess.run(
            [sys.executable, "-P", str(PROGRAM)],
            cwd=scratch,
            input=json.dumps(asked),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    told += [""] * (len(tasks) - len(told))
    return {task: read_text(task.checker, text) for task, text in zip(tasks, told, strict=True)}
