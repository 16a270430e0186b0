"""Read the installed package mlperf-logging: its rulesets, the round to which a log belongs, and the reference
convergence points (how many samples the reference needed at each batch size). The package is located but not
imported, because that would load pandas and scipy. launch/mlperf/judging.py runs its checkers.
"""

import importlib.util
import re
import statistics
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from benchmarks import files
from benchmarks.configs import read_yaml
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.run_log import LoggedRun
from benchmarks.values import Value

PACKAGE = "mlperf_logging"
RULESET = re.compile(r"\d+\.\d+\.\d+")
ROUNDS_FILE = Path("references") / "mlperf_rounds.yml"
# In the files of some benchmarks, the "epochs" of rcp_checker are samples.
UNITS = ("samples to converge", "Epochs to converge")


class Round(Value, frozen=True):
    """When the results of an MLPerf round were published."""

    ruleset: str
    published: date


class Rounds(Value, frozen=True):
    """The contents of configs/references/mlperf_rounds.yml."""

    date: str
    source: str
    rounds: list[Round]


class Ruleset(Value, frozen=True):
    """The ruleset that applies to a set of logs, and why it applies."""

    name: str
    because: str


class ReferencePoint(Value, frozen=True):
    """How many samples the reference needed to converge at one batch size."""

    batch: int
    samples: float  # the mean, without the best and the worst run
    stdev: float  # the population standard deviation of all runs, as in rcp_checker


class ExpectedSamples(Value, frozen=True):
    """How many samples the reference is expected to need at a batch size."""

    samples: float
    stdev: float
    between: list[int]  # the batch size of one reference point, or of the two points that were interpolated


def folder() -> Path:
    """Return the folder of the installed package."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise RequestError(
            "mlperf-logging is not installed",
            where="the launcher's environment",
            why="Stepmark reads MLPerf's checkers and reference points from this package",
            next_command="make install",
        )
    return Path(found.submodule_search_locations[0])


# --- rulesets -----------------------------------------------------------------------------------


def rulesets(benchmark: str | None = None) -> list[str]:
    """Return the rulesets for training, the newest last. If `benchmark` is set, return only those that contain it."""
    rules = f"closed_{benchmark}.yaml" if benchmark else ""
    places = (folder() / "compliance_checker").glob("training_*")
    found = [place.name.removeprefix("training_") for place in places if (place / rules).exists()]
    return sorted((name for name in found if RULESET.fullmatch(name)), key=_by_version)


def find_ruleset(runs: Sequence[LoggedRun], root: Path) -> Ruleset:
    """Return the ruleset of the round that was open at the latest run, or the next one with this benchmark."""
    made = max(run.start_ms or run.records[-1].time_ms for run in runs)
    known = rulesets(runs[0].benchmark) or rulesets()
    ends = [(one.ruleset, _end_ms(one.published)) for one in read_yaml(root / ROUNDS_FILE, Rounds).rounds]
    opened = next((ruleset for ruleset, end in ends if made < end), rulesets()[-1])
    name = next((one for one in known if _by_version(one) >= _by_version(opened)), known[-1])
    missing = "" if name == opened else f", {opened}, which does not have {runs[0].benchmark}"
    return Ruleset(name, f"the round that was open on the day of the logs{missing}")


def _end_ms(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000 + 86_400_000


def _by_version(ruleset: str) -> list[int]:
    return [*map(int, ruleset.split("."))]


def runs_of_a_submission(benchmark: str) -> int | None:
    """Return how many runs a submission of this benchmark must have, or None if the package does not list it."""
    from mlperf_logging.benchmark_meta import get_result_file_counts  # imports only tables

    count: int | None = get_result_file_counts("training").get(benchmark)
    return count


# --- reference convergence points ---------------------------------------------------------------


def has_reference_points(benchmark: str, ruleset: str) -> bool:
    return _points_file(benchmark, ruleset).is_file()


def reference_points(benchmark: MlperfBenchmark, ruleset: str) -> list[ReferencePoint]:
    """Return the reference points that rcp_checker uses, the smallest batch first.

    As in rcp_checker, a point is dropped if it needs more samples than the line between its neighbours, or if its
    batch is smaller than the batch of the point that needs the fewest samples.
    """
    path = _points_file(benchmark.name, ruleset)
    if not path.is_file():
        what = f"no reference convergence points of {benchmark.name} in ruleset {ruleset}"
        raise RequestError(what, where=str(path), why=f"the points are in rulesets {', '.join(benchmark.rulesets)}")
    points = sorted(map(_point, files.read_json(path, dict[str, Any]).values()), key=lambda point: point.batch)
    fastest = min(points, key=lambda point: point.samples)
    kept = [point for point in points if point.batch >= fastest.batch]
    place = 1
    while place < len(kept) - 1:
        if kept[place].samples > _between(kept[place].batch, kept[place - 1], kept[place + 1]).samples:
            del kept[place]
        else:
            place += 1
    return kept


def expected(points: Sequence[ReferencePoint], batch: int) -> ExpectedSamples | None:
    """Return the samples to expect at a batch size, interpolated between points; None outside the range of points."""
    low = next((point for point in reversed(points) if point.batch <= batch), None)
    high = next((point for point in points if point.batch >= batch), None)
    if low is None or high is None:
        return None
    return _between(batch, low, high) if low is not high else ExpectedSamples(low.samples, low.stdev, [batch])


def _points_file(benchmark: str, ruleset: str) -> Path:
    return folder() / "rcp_checker" / f"training_{ruleset}" / f"rcps_{benchmark}.json"


def _point(record: dict[str, Any]) -> ReferencePoint:
    samples = sorted(float(value) for unit in UNITS if unit in record for value in record[unit])
    return ReferencePoint(int(record["BS"]), statistics.fmean(samples[1:-1]), statistics.pstdev(samples))


def _between(batch: int, low: ReferencePoint, high: ReferencePoint) -> ExpectedSamples:
    share = (batch - low.batch) / (high.batch - low.batch)
    samples = low.samples + share * (high.samples - low.samples)
    return ExpectedSamples(samples, low.stdev + share * (high.stdev - low.stdev), [low.batch, high.batch])
