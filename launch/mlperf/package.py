"""Where the installed mlperf-logging package is, and what it ships: the reference points and the rules. It is found,
not imported: importing it brings pandas and scipy.
"""

import importlib.util
import json
import re
from pathlib import Path

from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.reference_points import ReferencePoint, read_points

PACKAGE = "mlperf_logging"
INSTALL = "pip install mlperf-logging"
RULESET = re.compile(r"\d+\.\d+\.\d+")


def folder() -> Path:
    """The folder of the installed package."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise RequestError(
            "mlperf-logging is not installed",
            where="the launcher's environment",
            why="its checkers and its reference points are read from it",
            next_command=INSTALL,
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
        raise RequestError(
            f"no reference convergence points of {name} in ruleset {ruleset}",
            where=str(path),
            why=f"{name} is in the rulesets {', '.join(benchmark.rulesets)}",
        )
    return read_points(json.loads(path.read_text(encoding="utf-8")), str(path))
