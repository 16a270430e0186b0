"""The installed mlperf-logging: its reference points and rules, and its checkers. It is found, not imported, because
that brings pandas and scipy. The checkers run in processes of their own (checker_process.py), and in a folder of
their own: they write logs where they are started, and one of them into what it judges.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks import files
from benchmarks.errors import RequestError
from benchmarks.mlperf.checkers import Checker, CheckerResult, read_text
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.reference_points import ReferencePoint, read_points
from benchmarks.mlperf.rounds import Rules

PACKAGE = "mlperf_logging"
LONGEST_SECONDS = 600  # of a checker
PROGRAM = Path(__file__).with_name("checker_process.py")
NEEDS_SCIPY = ("rcp_checker", "package_checker")
COMMON = ("common.yaml", "closed_common.yaml")
RULESET = re.compile(r"\d+\.\d+\.\d+")


def folder() -> Path:
    """The folder of the installed package."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise RequestError(
            "mlperf-logging is not installed",
            where="the launcher's environment",
            why="its checkers and its reference points are read from it",
            next_command="make install",
        )
    return Path(found.submodule_search_locations[0])


def rulesets() -> list[str]:
    """Those that the package has rules of training for, the newest last."""
    found = [path.name.removeprefix("training_") for path in (folder() / "compliance_checker").glob("training_*")]
    return sorted((name for name in found if RULESET.fullmatch(name)), key=by_version)


def by_version(ruleset: str) -> list[int]:
    return [*map(int, ruleset.split("."))]


def reference_points(benchmark: MlperfBenchmark, ruleset: str) -> list[ReferencePoint]:
    """Return the reference convergence points of a benchmark in a ruleset."""
    name = benchmark.name
    path = folder() / "rcp_checker" / f"training_{ruleset}" / f"rcps_{name}.json"
    if not path.is_file():
        what = f"no reference convergence points of {name} in ruleset {ruleset}"
        raise RequestError(what, where=str(path), why=f"{name} is in the rulesets {', '.join(benchmark.rulesets)}")
    return read_points(files.read_json(path, dict[str, Any]), str(path))


def rules(ruleset: str) -> Rules:
    """Which benchmarks a ruleset has, and which keys it requires of every log."""
    place = folder() / "compliance_checker" / f"training_{ruleset}"
    required = {key for name in COMMON for key in _required(place / name)}
    names = {path.stem.removeprefix("closed_") for path in place.glob("closed_*.yaml")}
    return Rules(ruleset, frozenset(names - {"common"}), frozenset(required))


def _required(path: Path) -> Iterator[str]:
    if path.is_file():
        blocks = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CBaseLoader) or []
        checks = [block["KEY"] for block in blocks if "KEY" in block]
        yield from (check["NAME"] for check in checks if check.get("REQ") in ("EXACTLY_ONE", "AT_LEAST_ONE"))


def runs_of_a_submission(benchmark: str) -> int | None:
    """How many logs the package checker wants of a benchmark."""
    from mlperf_logging.benchmark_meta import get_result_file_counts  # tables alone

    count: int | None = get_result_file_counts("training").get(benchmark)
    return count


def has_reference_points(benchmark: str, ruleset: str) -> bool:
    return (folder() / "rcp_checker" / f"training_{ruleset}" / f"rcps_{benchmark}.json").is_file()


# --- its checkers -------------------------------------------------------------------------------


class Task(NamedTuple):
    """One question to one checker."""

    checker: Checker
    arguments: tuple[str, ...]


def compliance(path: Path, ruleset: str) -> Task:
    """One log."""
    return Task("compliance_checker", ("--usage", "training", "--ruleset", ruleset, str(path)))


def convergence(results: Path, ruleset: str) -> Task:
    """A folder of result_N.txt against the reference points."""
    return Task("rcp_checker", (str(results), "--rcp_usage", "training", "--rcp_version", ruleset))


def seeds(logs: Sequence[Path], ruleset: str) -> Task:
    """Whether runs of one set have seeds of their own."""
    return Task("seed_checker", (ruleset, *map(str, logs)))


def submission_package(submission: Path, ruleset: str) -> Task:
    """A whole submission. It may leave scaling.json beside the results."""
    return Task("package_checker", (str(submission), "training", ruleset))


def system_description(description: Path, ruleset: str) -> Task:
    return Task("system_desc_checker", (str(description), "training", ruleset))


def ask(tasks: Sequence[Task]) -> dict[Task, CheckerResult]:
    """What the checkers say. Those that need scipy run beside the others: its import takes longer than the checks."""
    folder()  # says what to install where there is none
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
