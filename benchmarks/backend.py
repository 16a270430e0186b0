"""The interface every backend fills, and the one registry that finds them.

A backend is an installed package that names an object in the entry point group
`stepmark.backends`; benchmarks/ and launch/ know no backend by name.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import BinaryIO, Protocol

from benchmarks.errors import LIST_COMMAND, RequestError, nearest
from benchmarks.values import Benchmark, Parallelism, Plan, RunRecord, Scalar, SettingTypes, Step, Value

ENTRY_POINT_GROUP = "stepmark.backends"


class EnvironmentSpec(Value, frozen=True):
    """The virtual environment a backend's workers run in; made from its lock file on first use."""

    name: str
    lock_file: Path
    python_minimum: tuple[int, int]
    python_maximum: tuple[int, int]  # the newest the lock was made for
    import_check: str  # a module whose import proves that the environment works
    size_gb: float


class SkippedLine(Value, frozen=True):
    line: int  # 1-based
    reason: str


class LogEvent(Value, frozen=True):
    """One thing a foreign log said: a step, or a line that was left out and why.

    `attempt` counts from 1 and is never decreased. `duplicates` counts further reports of steps
    that were already read (other hosts).
    """

    attempt: int
    step: Step | None = None
    skipped: SkippedLine | None = None
    duplicates: int = 0


class LogFormat(Protocol):
    """A foreign log format: it says whether a log is its own, and streams what the log holds."""

    name: str
    seconds_resolution: float  # the last digit of the printed seconds

    def recognises(self, head: bytes) -> bool: ...

    def read(self, stream: BinaryIO) -> Iterator[LogEvent]: ...


class Backend(Protocol):
    """What a framework must answer to be measured by Stepmark."""

    name: str
    title: str
    engines: tuple[str, ...]
    log_formats: tuple[LogFormat, ...]
    layout_settings: frozenset[str]  # the settings that share the work among devices
    reserved_variables: tuple[str, ...]  # beginnings of variables that would steer the framework past the plan
    reserved_settings: Mapping[str, str]  # settings Stepmark fills itself -> what to use instead

    def settings(self) -> SettingTypes:
        """Every setting of the framework that --set may name, with its type."""
        ...

    def parallelism(self, knobs: dict[str, Scalar]) -> Parallelism:
        """What the framework's sharding settings mean in common words."""
        ...

    def refusals(self, benchmark: Benchmark) -> list[RequestError]:
        """Why this framework cannot run the benchmark; empty when it can."""
        ...

    def remat_saves(self, benchmark: Benchmark) -> frozenset[str]:
        """Which activations of a layer are kept for the backward pass (names of benchmarks/capacity.py)."""
        ...

    def environment(self) -> EnvironmentSpec: ...

    def plan(self, benchmark: Benchmark) -> Plan: ...

    def read_phase(self, phase_dir: Path, attempt: int) -> RunRecord:
        """What the workers of one phase wrote, whole or half way."""
        ...

    def follow(self, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
        """A function that gives the steps written since it was last called, while the phase runs."""
        ...


def backends() -> dict[str, Backend]:
    """Every installed backend by name."""
    return {entry.name: entry.load() for entry in entry_points(group=ENTRY_POINT_GROUP)}


def backend_names() -> list[str]:
    return sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})


def find_backend(name: str) -> Backend:
    found = [entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name == name]
    if not found:
        raise RequestError(
            f"unknown backend '{name}': {nearest(name, backend_names())}",
            where="--backend",
            why=f"a backend is an installed package that registers in the entry point group '{ENTRY_POINT_GROUP}'",
            next_command=LIST_COMMAND,
        )
    backend: Backend = found[0].load()
    return backend


def all_log_formats() -> list[LogFormat]:
    """The foreign log formats of all installed backends."""
    return [log_format for _, backend in sorted(backends().items()) for log_format in backend.log_formats]
