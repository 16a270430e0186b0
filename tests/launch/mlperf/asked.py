"""The package's checkers asked of one log."""

from pathlib import Path

from benchmarks.mlperf.checkers import CheckerResult
from launch.mlperf import package


def complied(path: Path, ruleset: str, rules: Path | None = None) -> CheckerResult:
    task = package.compliance(path, ruleset, rules)
    return package.ask([task])[task]
