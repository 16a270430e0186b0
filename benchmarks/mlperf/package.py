"""The installed mlperf-logging: its rulesets, its rules and its reference points; and which round a log is of, by its
date, its benchmark and its lines. The package is found, not imported, because that brings pandas and scipy.
launch/mlperf/judging.py runs its checkers.
"""

import importlib.util
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks import files
from benchmarks.configs import read_yaml
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.reference_points import ReferencePoint, read_points
from benchmarks.mlperf.run_log import LoggedRun
from benchmarks.values import Value

PACKAGE = "mlperf_logging"
COMMON = ("common.yaml", "closed_common.yaml")
RULESET = re.compile(r"\d+\.\d+\.\d+")
ROUNDS_FILE = Path("references") / "mlperf_rounds.yml"


class Round(Value, frozen=True):
    """When the results of a round were published."""

    ruleset: str
    published: date


class Rounds(Value, frozen=True):
    """configs/references/mlperf_rounds.yml"""

    date: str
    source: str
    rounds: list[Round]


class Rules(Value, frozen=True):
    """What tells one ruleset of the installed package from another."""

    name: str
    benchmarks: frozenset[str]
    required: frozenset[str]  # keys that every log must have


class Ruleset(Value, frozen=True):
    """The ruleset that a set of logs is judged by, and why by that."""

    name: str
    because: str


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


# --- the round of a log ------------------------------------------------------------------------


def read_rounds(root: Path) -> list[Round]:
    return read_yaml(root / ROUNDS_FILE, Rounds).rounds


def find_ruleset(runs: Sequence[LoggedRun], rules: Sequence[Rules], rounds: Sequence[Round]) -> Ruleset:
    """The round that was open when the last of the runs was made; `rules` and `rounds` are oldest first.

    A benchmark that the round lacks moves it to the next one that has it. A round whose new required keys are all
    absent gives way to the one before it: the code that ran was written for that.
    """
    made, name = _made(runs), runs[0].benchmark
    known = [one for one in rules if name in one.benchmarks] or list(rules)
    opened = next((one.ruleset for one in rounds if made is not None and made <= one.published), rules[-1].name)
    order = [one.name for one in rules]
    place = next((n for n, one in enumerate(known) if order.index(one.name) >= order.index(opened)), len(known) - 1)
    because = f"the logs are of {made}" if made else "the logs have no date"
    if known[place].name != opened:
        because += f", and {name} is not in {opened}"
    keys = {record.key for run in runs for record in run.records}
    while place > 0 and (new := known[place].required - known[place - 1].required) and not new & keys:
        because += f", and have none of the lines that are new in {known[place].name}"
        place -= 1
    return Ruleset(known[place].name, because)


def of_one_round(own: Ruleset, newest: str, benchmark: str | None, rules: Sequence[Rules]) -> Ruleset:
    """A submission is of one round: older logs that it submits again are judged with its newest ones."""
    if own.name == newest or not any(one.name == newest and benchmark in one.benchmarks for one in rules):
        return own
    return Ruleset(newest, f"{own.because}, but others of this submission are later")


def _made(runs: Sequence[LoggedRun]) -> date | None:
    """The day of the last run, in UTC."""
    times = [run.start_ms for run in runs if run.start_ms] or [r.time_ms for run in runs for r in run.records]
    try:
        return datetime.fromtimestamp(max(times) / 1000, UTC).date()
    except (ValueError, OverflowError, OSError):
        return None
