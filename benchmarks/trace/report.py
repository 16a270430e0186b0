"""What `launch/report.py trace` says of a run, as values: the summaries, the calls, and the files to open. Pure."""

from collections.abc import Sequence
from typing import Literal

from benchmarks.trace.clock import Comparison
from benchmarks.trace.kinds import COLLECTIVE
from benchmarks.trace.nccl import NcclCalls
from benchmarks.trace.summary import DeviceTimes, HostSummary, mean_times
from benchmarks.values import Value

SCHEMA_VERSION = 1


class TraceFile(Value, frozen=True):
    """One file of a profiler, and its summary; without one, why."""

    path: str
    format: Literal["xplane", "nsys"]
    bytes: int
    summary: HostSummary | None
    why_not: str = ""
    next_command: str = ""  # what makes one that can be summarised
    phase: str = ""  # of the run; empty where that is not known


class ToOpen(Value, frozen=True):
    """Files for a program with a screen, and the command or the page that opens them."""

    what: str
    how: str
    paths: list[str]


class TraceReport(Value, frozen=True):
    """All of it. What is unknown is null or empty."""

    place: str
    title: str
    attempt: int | None
    files: list[TraceFile]
    mean: DeviceTimes | None  # over all hosts and devices
    comparison: Comparison | None
    nccl: NcclCalls | None
    to_open: list[ToOpen]
    notes: list[str]
    phase: str | None = None  # that is summarised
    schema_version: int = SCHEMA_VERSION

    @property
    def summaries(self) -> list[HostSummary]:
        return [file.summary for file in self.files if file.summary is not None]

    @property
    def is_whole_trace(self) -> bool:
        """Whether the times are of all that was recorded, and not of a step."""
        return any(summary.window.is_whole_trace for summary in self.summaries)

    @property
    def of_phase(self) -> list[TraceFile]:
        """Those that the mean would be over if each could be summarised."""
        return [file for file in self.files if file.phase == (self.phase or "")]


def mean_of(files: Sequence[TraceFile]) -> DeviceTimes | None:
    means = [file.summary.mean for file in files if file.summary is not None]
    return mean_times(means, "all", "mean") if means else None


def hidden_share(times: DeviceTimes) -> float | None:
    """How much of the collectives' time has compute beside it; None where there are none."""
    work = times.work_seconds[COLLECTIVE]
    return 1 - times.exposed_communication_seconds / work if work else None
