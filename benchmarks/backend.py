"""The interface that every backend implements, and the registry that finds installed backends.

A backend is a package that registers an object in the entry point group `stepmark.backends`. No code in benchmarks/
or launch/ contains the name of a backend.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol, TypeVar, runtime_checkable

from benchmarks.errors import LIST_COMMAND, RequestError, UnknownName
from benchmarks.values import (
    Benchmark,
    Hardware,
    ImageNames,
    Lora,
    Parallelism,
    Phase,
    Plan,
    RunRecord,
    Scalar,
    SettingTypes,
    Step,
    Storage,
    Value,
)

if TYPE_CHECKING:
    from benchmarks.assets import Repository
    from benchmarks.compilation.compiled import Job
    from benchmarks.compilation.traced import TraceJob

ENTRY_POINT_GROUP = "stepmark.backends"


class LockFile(Value, frozen=True):
    """A set of pinned packages, and the Python versions that it was resolved for."""

    path: Path
    python_minimum: tuple[int, int]
    python_maximum: tuple[int, int]
    size_gb: float
    offered: str = ""  # a requirement that pip's package index must offer, otherwise another lock is used
    cuda: tuple[int, int] | None = None  # the CUDA version of the locked libraries; None: the lock is not for GPUs
    complete: bool = True  # False: some dependencies are omitted on purpose, so `uv pip check` would fail


class EnvironmentSpec(Value, frozen=True):
    """The environment of an engine's workers. At sites with a container runtime, it is a container. At other sites,
    Stepmark makes a virtual environment on first use, from the first lock that fits the machine.
    """

    name: str
    locks: tuple[LockFile, ...]  # for one platform, the preferred lock first; empty: the engine needs a container
    import_check: str  # a module whose import proves that the environment works
    import_variables: dict[str, str] = {}  # environment variables that this import needs on some machines
    gpu_packages: tuple[str, ...] = ()  # packages that the framework needs to use GPUs of this platform
    image: ImageNames = ""  # the container image, by its name in a registry; empty: no image is known
    image_python: str = "python3"  # the Python interpreter in the image
    only_by_name: bool = False  # True: the image needs permission, so setup fetches it only if the user names it


class FlagFact(Value, frozen=True):
    """The facts about one compiler flag that Stepmark knows without running the compiler."""

    flag: str  # as typed: name=value
    status: Literal["known", "unknown", "not listed"]
    text: str  # the flag's purpose and hardware; for an unknown flag, the versions that had it
    successor: str = ""  # the flag that replaces an unknown one


class FlagGroup(Value, frozen=True):
    """Compiler flags and environment variables that belong together."""

    flags: dict[str, str]
    environment: dict[str, str]


class FlagsCheck(Value, frozen=True):
    """The known facts about some flags, and a program that lets the compiler check them. The program runs in the
    engine's environment without a GPU. It exits with 0, or prints a line for each rejected flag and exits with 2.
    """

    facts: list[FlagFact]
    command: list[str]  # may contain the placeholders of a Phase
    environment: dict[str, str]


class SideProgram(Value, frozen=True):
    """A program that Stepmark starts once on this machine, in the engine's environment, outside of any run.

    It writes its results to `{phase_dir}/report.json`. `{phase_dir}` is a folder that contains the program's input.
    """

    command: list[str]  # may contain the placeholders of a Phase
    environment: dict[str, str] = {}
    platform: str = "cpu"  # the platform whose environment the program needs (Hardware.platform)


class SkippedLine(Value, frozen=True):
    line: int  # 1-based
    reason: str


class LogEvent(Value, frozen=True):
    """One event of a log that Stepmark did not write (a foreign log): a step, or a skipped line with the reason."""

    attempt: int  # starts at 1 and never decreases
    step: Step | None = None
    skipped: SkippedLine | None = None
    duplicates: int = 0  # the number of step lines that repeat a step which another host reported before


class LogFormat(Protocol):
    """A format of logs that Stepmark did not write. It recognises logs in this format and streams their events."""

    name: str
    seconds_are: str  # the meaning of the printed step time; empty: unknown
    no_seconds: str  # why the log has no step times
    prints_loss: bool

    def seconds_resolution(self, seconds: float) -> float:
        """Return the value of one unit in the last digit that the log prints for a time of this size."""

    def rate_resolution(self, rate: float) -> float:
        """Return the value of one unit in the last digit that the log prints for TFLOP/s or tokens/s of this size."""

    def recognises(self, head: bytes) -> bool: ...

    def read(self, stream: BinaryIO) -> Iterator[LogEvent]: ...


class Backend(Protocol):
    """The core interface of every framework. Optional capabilities are separate protocols in this module."""

    name: str
    title: str
    engines: tuple[str, ...]  # the first is the default
    layout_settings: frozenset[str]  # the settings that divide the work among devices
    reserved_variables: tuple[str, ...]  # prefixes of variables that change the framework but are not in the plan
    reserved_settings: Mapping[str, str]  # settings that Stepmark sets itself -> what to use instead

    def settings(self) -> SettingTypes:
        """Return every setting of the framework that --set accepts, with its type."""

    def parallelism(self, knobs: dict[str, Scalar], gpus: int) -> Parallelism:
        """Return the layout that the framework's sharding settings produce on `gpus` devices."""

    def refusals(self, benchmark: Benchmark) -> list[RequestError]:
        """Return the reasons why this framework cannot run the benchmark; an empty list if it can."""

    def storage(self, benchmark: Benchmark) -> Storage:
        """Return how the framework stores the state of a training step, for the estimate of memory."""

    def environment(self, engine: str, platform: str = "cpu") -> EnvironmentSpec:
        """Return the environment of an engine, with the lock files for a platform (Hardware.platform)."""

    def plan(self, benchmark: Benchmark) -> Plan: ...

    def read_phase(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:
        """Return what the workers of one phase recorded, even if the phase did not finish."""

    def follow(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
        """Return a function that returns the steps written since its last call, while the phase runs."""

    def log_formats(self) -> tuple[LogFormat, ...]:
        """Return the formats of the framework's logs that Stepmark can read."""


# --- optional capabilities, checked with isinstance ----------------------------------------------


@runtime_checkable
class RefusesHardware(Protocol):
    """A backend with engines that run only on some device types."""

    def refuses_hardware(self, engine: str, hardware: Hardware) -> RequestError | None:
        """Return why the engine cannot run on a device type with any recipe; None if it can."""


@runtime_checkable
class RanksLayouts(Protocol):
    """A backend that can rank layouts that no recipe contains (plan.py layouts)."""

    def layout_settings_for(
        self, engine: str, parallelism: Parallelism, gpus: int, hardware: Hardware
    ) -> dict[str, Scalar] | None:
        """Return the settings for a layout, as --set accepts them; None if it is not supported."""


@runtime_checkable
class TrainsAdapters(Protocol):
    """A backend that trains adapters (--task=lora)."""

    def lora(self, knobs: dict[str, Scalar]) -> Lora:
        """Return the adapters that the framework's settings describe."""

    def lora_settings_for(self, engine: str, wanted: Lora) -> dict[str, Scalar]:
        """Return the settings for these adapters. Raise RequestError if the framework does not support them."""


@runtime_checkable
class Profiles(Protocol):
    """A backend whose programs can run under a profiler (--profile)."""

    profiles: frozenset[str]  # the supported values of --profile


@runtime_checkable
class GuidedByProfiles(Protocol):
    """A backend with profile-guided latency estimation (--pgle)."""

    pgle_ways: frozenset[str]  # the supported values of --pgle, in addition to `off`

    def profile_key(self, benchmark: Benchmark) -> str | None:
        """Return the key of the profile that this benchmark reads, or None. Equal keys mean equal programs."""


@runtime_checkable
class CompilerFlags(Protocol):
    """A backend whose compiler flags (--set=xla_FLAG) can be checked before a run."""

    def flag_group(self, name: str, hardware: Hardware) -> FlagGroup:
        """Return the flags of --set=xla_group=NAME for a device. Raise RequestError if there is no such group."""

    def flags_check(self, flags: list[str]) -> FlagsCheck:
        """Return the facts about these flags and the program to check them. A flag has the form --name=value."""


@runtime_checkable
class MeasuresPeaks(Protocol):
    """A backend that measures the matmul peak of a device (launch/peak.py)."""

    def peak_program(self, engine: str, platform: str) -> SideProgram | None:
        """Return a program that turns a peaks.PeakRequest (`{phase_dir}/request.json`) into a peaks.PeakReport."""


@runtime_checkable
class ProvesWork(Protocol):
    """A backend that can prove that its framework computes the same results as another framework."""

    def work_program(self, benchmark: Benchmark) -> SideProgram | None:
        """Return a program that trains a few steps on given tokens, from given or new weights. It reads request.json
        (a work.WorkRequest) and CASE/given.npz in `{phase_dir}`, and writes CASE/arrays.npz and a work.WorkReport.
        """


@runtime_checkable
class CompilesAhead(Protocol):
    """A backend for plan.py compile: it compiles a step (Job, CompileReport) or traces it (TraceJob, TraceReport)."""

    def compile_engine(self, benchmark: Benchmark) -> str:
        """Return the engine in whose environment the program runs."""

    def compile_job(self, name: str, benchmark: Benchmark) -> "Job | TraceJob":
        """Return the step to compile or trace. Raise RequestError if this is impossible, as for an unknown GPU."""

    def compile_program(self) -> SideProgram:
        """Return a program that compiles training steps. `{phase_dir}/request.json` is a list of jobs. For job N, the
        program writes N/log, and either N/report.json or (with the exit code) N/failed.json.
        """


@runtime_checkable
class Checks(Protocol):
    """A backend with a program that runs first in a cluster's job, on the GPUs of one node. The program imports the
    framework and builds the run's configuration. Its last line is `stepmark check: ok {json}` with exit code 0, or
    `stepmark check: what; why; next: what to do` with exit code 1 (read by benchmarks/runs/first_check.py).
    """

    def check_phase(self, benchmark: Benchmark) -> Phase | None:
        """Return the phase `check`; None if the engine does not have one."""


@runtime_checkable
class NeedsTransformerEngine(Protocol):
    """A backend with settings that need Transformer Engine, a package that its virtual environment does not have."""

    def needs_transformer_engine(self, benchmark: Benchmark) -> Mapping[str, str]:
        """Return each setting that needs Transformer Engine -> the flag that avoids it."""


@runtime_checkable
class UnevenStages(Protocol):
    """A backend with pipelines whose stages do not all have the same number of the model's layers."""

    def layers_in_pipeline(self, benchmark: Benchmark) -> int | None:
        """Return the number of layers that the stages share equally, or None if a setting lists each stage."""


@runtime_checkable
class ReadsHub(Protocol):
    """A backend with an engine that reads a Hugging Face repository by name. A job may have no token and no internet,
    so launch/setup.py --site fetches the files once (benchmarks/assets.py).
    """

    def hub_repository(self, engine: str, model: str) -> "Repository | None":
        """Return the repository that the engine reads for a model, or None."""


Capability = TypeVar("Capability")


def require_capability(backend: Backend, capability: type[Capability], otherwise: str, where: str) -> Capability:
    """Return the backend if it has a capability. Otherwise raise RequestError with the text in `otherwise`."""
    if isinstance(backend, capability):
        return backend
    raise RequestError(f"{backend.title} {otherwise}", where=where, next_command=LIST_COMMAND)


# --- installed backends ---------------------------------------------------------------------------


@cache
def installed_backends() -> dict[str, str]:
    """Return the installed backends: name -> module:object. If a name occurs twice, the first on sys.path is used.

    importlib.metadata finds the same backends, but its import takes a tenth of the time limit for a dry run.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        for path in sorted(Path(folder or ".").glob("*-info/entry_points.txt")):
            _, header, rest = path.read_text(encoding="utf-8").partition(f"[{ENTRY_POINT_GROUP}]")
            lines = rest.partition("\n[")[0].splitlines() if header else []
            for name, _, place in (line.partition("=") for line in lines if "=" in line):
                found.setdefault(name.strip(), place.strip())
    return found


def _load(place: str) -> Backend:
    module, _, name = place.partition(":")
    backend: Backend = getattr(import_module(module), name)
    return backend


def backends() -> dict[str, Backend]:
    """Return every installed backend by name."""
    return {name: _load(place) for name, place in installed_backends().items()}


def backend_names() -> list[str]:
    return sorted(installed_backends())


def find_backend(name: str) -> Backend:
    found = installed_backends().get(name)
    if not found:
        known = backends()
        owner = next((backend.name for backend in known.values() if name in backend.engines), None)
        titles = ", ".join(f"{backend.name} is {backend.title}" for backend in known.values())
        raise UnknownName(
            f"unknown backend '{name}'",
            owner or name,
            known,
            where="--backend",
            why=f"{titles}; a package adds a backend through the entry point group '{ENTRY_POINT_GROUP}'",
            next_command=f"--backend={owner}" if owner else LIST_COMMAND,
        )
    return _load(found)
