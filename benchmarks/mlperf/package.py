"""The installed mlperf-logging: its rulesets, its rules and its reference points. It is found, not imported,
because that brings pandas and scipy. launch/mlperf/checkers.py runs its checkers.
"""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks import files
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.reference_points import ReferencePoint, read_points
from benchmarks.mlperf.rounds import Rules

PACKAGE = "mlperf_logging"
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
