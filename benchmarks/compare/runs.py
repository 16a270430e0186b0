"""Read a run from its folder for a comparison: its result, its request, and its environment."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from benchmarks.errors import RequestError
from benchmarks.job_record import figures_from
from benchmarks.measuring.summary import Result
from benchmarks.runs.runfolder import RESULT, RunFolder, without_result
from benchmarks.telemetry.gpu import GpuTelemetry
from benchmarks.values import Benchmark, Phase


class PairPlace(NamedTuple):
    """The place of a run in a sweep. Runs of the same repeat form a pair: they ran one after the other."""

    sweep: str
    cell: int
    repeat: int


class ComparedRun(NamedTuple):
    name: str  # name of its folder
    path: str
    result: Result
    benchmark: Benchmark
    provenance: dict[str, Any]
    measured: Phase
    began: float | None  # Unix time when the job started; if it is not recorded, the time in the run's name
    pair: PairPlace | None = None

    @property
    def gpu(self) -> GpuTelemetry | None:
        return self.result.telemetry.gpu if self.result.telemetry else None


Runs = Sequence[ComparedRun]


class Chosen(NamedTuple):
    """One side of the request: the readable runs, and the reason for each run that could not be read."""

    label: str
    runs: Runs
    left_out: dict[str, str]


def read_side(label: str, folders: Iterable[RunFolder], pairs: Mapping[str, PairPlace]) -> Chosen:
    """Return the runs in these folders, without duplicates."""
    runs: list[ComparedRun] = []
    left_out: dict[str, str] = {}
    for folder in {folder.path.resolve(): folder for folder in folders}.values():
        try:
            run = read_run(folder)
            runs.append(run._replace(pair=pairs.get(run.name)))
        except RequestError as error:
            left_out[folder.run_id] = "; ".join(filter(None, (error.what, error.next_command)))
    return Chosen(label=label, runs=runs, left_out=left_out)


def read_run(folder: RunFolder) -> ComparedRun:
    """Read a run. Raise RequestError if the run has no result or if one of its files cannot be read."""
    if not (folder.path / RESULT).exists():
        raise without_result(folder.path)
    result = folder.stored_result()
    events = folder.job_events(figures_from(result.attempts).attempt if result.attempts else 1)
    return ComparedRun(
        name=folder.run_id,
        path=str(folder.path),
        result=result,
        benchmark=folder.benchmark(),
        provenance=folder.provenance(),
        measured=folder.measured_phase(),
        began=next((one.time for one in events if one.event == "start"), time_in_name(result.run_id)),
    )


def time_in_name(run_id: str) -> float | None:
    try:
        return datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
