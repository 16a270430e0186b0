"""Runs the installed package's checkers, each as a program of its own in a folder of its own: they write logs where
they are started, and one of them into what it judges.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.mlperf.checkers import Checker, CheckerResult, read_text
from launch.mlperf.package import PACKAGE, folder

LONGEST_SECONDS = 600


def compliance(path: Path, ruleset: str, rules: Path | None = None) -> CheckerResult:
    """One log; by the rules of the package, or by others that were derived from them."""
    config = ["--config", str(rules)] if rules else []
    return _ask("compliance_checker", ["--usage", "training", "--ruleset", ruleset, *config, str(path)])


def convergence(results: Path, ruleset: str) -> CheckerResult:
    """A folder of result_N.txt against the reference points."""
    return _ask("rcp_checker", [str(results), "--rcp_usage", "training", "--rcp_version", ruleset])


def package(submission: Path, ruleset: str) -> CheckerResult:
    """A whole submission. It may leave scaling.json beside the results."""
    return _ask("package_checker", [str(submission), "training", ruleset])


def system(description: Path, ruleset: str) -> CheckerResult:
    return _ask("system_desc_checker", [str(description), "training", ruleset])


def _ask(checker: Checker, arguments: list[str]) -> CheckerResult:
    folder()  # says what to install where there is none
    with tempfile.TemporaryDirectory(prefix="stepmark-mlperf-") as scratch:
        command = [sys.executable, "-m", f"{PACKAGE}.{checker}", *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=scratch,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=LONGEST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return CheckerResult(checker=checker, passed=False, complaints=[f"did not end in {LONGEST_SECONDS} s"])
        return read_text(checker, done.stdout.decode(errors="replace"))
