"""MLLOG files as runs and their stories: between files, configs, the installed package and benchmarks/mlperf."""

from pathlib import Path
from typing import BinaryIO

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.records import read_records
from benchmarks.mlperf.reference_points import Expected, expected
from benchmarks.mlperf.run_log import LoggedRun, read_runs
from benchmarks.mlperf.story import Story, tell
from launch.mlperf import package


def runs_of(stream: BinaryIO) -> list[LoggedRun]:
    """The runs of a log, from its start."""
    stream.seek(0)
    return read_runs(read_records(stream))


def runs_in(path: Path) -> list[LoggedRun]:
    try:
        with path.open("rb") as stream:
            return runs_of(stream)
    except OSError as error:
        raise RequestError(f"can't read the log: {error.strerror}", where=str(path)) from None


def definition_of(run: LoggedRun, configs: Configs) -> MlperfBenchmark | None:
    """The benchmark that a run names, where it is known here."""
    return configs.mlperf(run.benchmark) if run.benchmark in configs.names("mlperf") else None


def expected_of(run: LoggedRun, benchmark: MlperfBenchmark | None, ruleset: str | None = None) -> Expected | None:
    """What the reference needs at the batch of a run; None where there is no reference."""
    if benchmark is None or not run.batch:
        return None
    return expected(package.reference_points(benchmark, ruleset or benchmark.rulesets[-1]), run.batch)


def stories(stream: BinaryIO, configs: Configs) -> list[Story]:
    """Every run of a log, told with the reference points of the newest ruleset that has its benchmark."""
    told = ((run, definition_of(run, configs)) for run in runs_of(stream))
    return [tell(run, benchmark, expected_of(run, benchmark)) for run, benchmark in told]
