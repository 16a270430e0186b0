"""A run as a comparison takes it: its result, its request, and what is known of where it ran. Reads its folder."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from benchmarks import files
from benchmarks.errors import RequestError
from benchmarks.measuring.summary import Result
from benchmarks.runs.runfolder import RESULT, RunFolder
from benchmarks.telemetry.gpu import GpuTelemetry
from benchmarks.telemetry.samples import NODE_FILES, NodeFacts
from benchmarks.values import Benchmark, Phase

LONGEST = 1 << 20  # of a line that is looked at
_LINE = msgspec.json.Decoder(NodeFacts)


class PairPlace(NamedTuple):
    """Where a sweep ran it: runs of one repeat were neighbours."""

    sweep: str
    cell: int
    repeat: int


class ComparedRun(NamedTuple):
    name: str  # of its folder
    path: str
    result: Result
    benchmark: Benchmark
    provenance: dict[str, Any]
    measured: Phase
    nodes: Sequence[NodeFacts] = ()  # of its last attempt
    pair: PairPlace | None = None

    @property
    def began(self) -> float | None:
        """Unix time of its first sample, as a job may have waited in a queue; otherwise the time in its name."""
        if self.nodes:
            return min(node.time for node in self.nodes)
        try:
            return datetime.strptime(self.result.run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        except ValueError:
            return None

    @property
    def gpu(self) -> GpuTelemetry | None:
        return self.result.telemetry.gpu if self.result.telemetry else None


Runs = Sequence[ComparedRun]


class Chosen(NamedTuple):
    """One side as it was asked for: the runs that were found, and those that could not be read."""

    label: str
    runs: Runs
    left_out: dict[str, str]


def read_side(label: str, folders: Iterable[RunFolder], pairs: Mapping[str, PairPlace]) -> Chosen:
    """The runs of these folders, each once."""
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
    """RequestError: it has no result, or a file that can't be read."""
    if not (folder.path / RESULT).exists():
        what, command = "it has no result.json: it goes on, or was cut off", "python launch/status.py says which"
        raise RequestError(what, where=str(folder.path), next_command=command)
    result = folder.stored_result()
    return ComparedRun(
        name=folder.run_id,
        path=str(folder.path),
        result=result,
        benchmark=folder.benchmark(),
        provenance=folder.provenance(),
        measured=folder.measured_phase(),
        nodes=_first_samples(folder),
    )


def _first_samples(folder: RunFolder) -> list[NodeFacts]:
    """The first line of each node of the last attempt; one that can't be read says nothing."""
    found = []
    place = folder.telemetry_dir(max(folder.attempts(), default=1))
    for path in sorted(place.glob(NODE_FILES)):
        try:
            with files.opened(path) as stream:
                found.append(_LINE.decode(stream.readline(LONGEST)))
        except (OSError, *files.NOT_JSON):
            continue
    return found
