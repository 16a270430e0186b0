"""The installed mlperf-logging: its reference points and rules, and its checkers. It is found, not imported, because
that brings pandas and scipy. Each checker runs as a program in a folder of its own: they write logs where they are
started, and one of them into what it judges.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.errors import RequestError
from benchmarks.mlperf.checkers import Checker, CheckerResult, read_text
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.reference_points import ReferencePoint, read_points

PACKAGE = "mlperf_logging"
LONGEST_SECONDS = 600  # of a checker
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
    return sorted((name for name in found if RULESET.fullmatch(name)), key=lambda name: [*map(int, name.split("."))])


def reference_points(benchmark: MlperfBenchmark, ruleset: str) -> list[ReferencePoint]:
    """The reference convergence points of a benchmark in a ruleset, those of the real one where it stands for one."""
    name = benchmark.stands_for or benchmark.name
    path = folder() / "rcp_checker" / f"training_{ruleset}" / f"rcps_{name}.json"
    if not path.is_file():
        what = f"no reference convergence points of {name} in ruleset {ruleset}"
        raise RequestError(what, where=str(path), why=f"{name} is in the rulesets {', '.join(benchmark.rulesets)}")
    return read_points(json.loads(path.read_text(encoding="utf-8")), str(path))


# --- its checkers -------------------------------------------------------------------------------


def compliance(path: Path, ruleset: str, rules: Path | None = None) -> CheckerResult:
    """One log; by the rules of the package, or by others that were derived from them."""
    config = ["--config", str(rules)] if rules else []
    return _ask("compliance_checker", "--usage", "training", "--ruleset", ruleset, *config, str(path))


def convergence(results: Path, ruleset: str) -> CheckerResult:
    """A folder of result_N.txt against the reference points."""
    return _ask("rcp_checker", str(results), "--rcp_usage", "training", "--rcp_version", ruleset)


def submission_package(submission: Path, ruleset: str) -> CheckerResult:
    """A whole submission. It may leave scaling.json beside the results."""
    return _ask("package_checker", str(submission), "training", ruleset)


def system_description(description: Path, ruleset: str) -> CheckerResult:
    return _ask("system_desc_checker", str(description), "training", ruleset)


def _ask(checker: Checker, *arguments: str) -> CheckerResult:
    folder()  # says what to install where there is none
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        try:
            done = subprocess.run(
                [sys.executable, "-m", f"{PACKAGE}.{checker}", *arguments],
                cwd=scratch,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=LONGEST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return CheckerResult(checker, passed=False, complaints=[f"did not end in {LONGEST_SECONDS} s"])
        return read_text(checker, done.stdout.decode(errors="replace"))
