"""The interface every backend fills, and the one registry that finds them.

A backend is an installed package that names an object in the entry point group
`stepmark.backends`; benchmarks/ and launch/ know no backend by name.
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

ENTRY_POINT_GROUP = "stepmark.backends"


class LockFile(Value, frozen=True):
    """One set of pinned packages, and the Pythons it was resolved for."""

    path: Path
    python_minimum: tuple[int, int]
    python_maximum: tuple[int, int]
    size_gb: float
    offered: str = ""  # a requirement that pip's settings must offer; without it the lock cannot be used
    cuda: tuple[int, int] | None = None  # whose libraries it holds; None: no GPU is used with it


class EnvironmentSpec(Value, frozen=True):
    """The environment of an engine's workers: a virtual environment, made on first use from the first fitting lock,
    or at a site that has a container runtime, a container.
    """

    name: str
    locks: tuple[LockFile, ...]  # of one platform, the preferred first; none: it runs only in its container
    import_check: str  # a module whose import proves that the environment works
    import_variables: dict[str, str] = {}  # without which it cannot be imported on some machines
    gpu_packages: tuple[str, ...] = ()  # without any of which the framework sees no GPU of this platform
    image: ImageNames = ""  # the container image, as a registry names it; empty: none is known
    image_python: str = "python3"  # the Python inside it
    only_by_name: bool = False  # not everybody may pull the image: a site gets it where its engine or model is named


class FlagFact(Value, frozen=True):
    """The known facts of one compiler flag before any compiler is asked."""

    flag: str  # as given, name=value
    status: Literal["known", "unknown", "not listed"]
    text: str  # what it is for and on what hardware; of an unknown one, which versions knew it
    successor: str = ""  # what to use instead of an unknown one


class FlagGroup(Value, frozen=True):
    """Flags of a compiler, and variables, that belong together."""

    flags: dict[str, str]
    environment: dict[str, str]


class FlagsCheck(Value, frozen=True):
    """Some flags of a framework's compiler: what the tables say of them, and the program that asks the compiler, in
    the engine's environment and without a GPU: exit code 0, or 2 with a line for each flag that it does not know.
    """

    facts: list[FlagFact]
    command: list[str]  # with the placeholders of a Phase
    environment: dict[str, str]


class SideProgram(Value, frozen=True):
    """A program that Stepmark starts once on this machine, in the engine's environment, outside of any run.

    It writes its findings to `{phase_dir}/report.json`. `{phase_dir}` is its own folder and may hold its input.
    """

    command: list[str]  # with the placeholders of a Phase
    environment: dict[str, str] = {}
    platform: str = "cpu"  # whose environment it is started in (Hardware.platform)


class SkippedLine(Value, frozen=True):
    line: int  # 1-based
    reason: str


class LogEvent(Value, frozen=True):
    """One event of a foreign log: a step, or a skipped line with the reason."""

    attempt: int  # from 1, never decreasing
    step: Step | None = None
    skipped: SkippedLine | None = None
    duplicates: int = 0  # further reports, by other hosts, of steps that were already read


class LogFormat(Protocol):
    """A foreign log format: it says whether a log is its own, and streams what the log holds."""

    name: str
    seconds_are: str  # what the printed time of a step is; empty: nothing is known of it
    no_seconds: str  # why no time of a step is printed
    prints_loss: bool

    def seconds_resolution(self, seconds: float) -> float:
        """The last digit that is printed of a time near this one: it may be wrong by half of it."""

    def rate_resolution(self, rate: float) -> float:
        """The same of the rates a line prints: TFLOP/s and tokens/s."""

    def recognises(self, head: bytes) -> bool: ...

    def read(self, stream: BinaryIO) -> Iterator[LogEvent]: ...


class Backend(Protocol):
    """The core interface of every framework. Everything else is an optional capability, below."""

    name: str
    title: str
    engines: tuple[str, ...]  # the first is the default
    layout_settings: frozenset[str]  # the settings that share the work among devices
    reserved_variables: tuple[str, ...]  # beginnings of variables that would steer the framework past the plan
    reserved_settings: Mapping[str, str]  # settings Stepmark fills itself -> what to use instead

    def settings(self) -> SettingTypes:
        """Every setting of the framework that --set may name, with its type."""

    def parallelism(self, knobs: dict[str, Scalar], gpus: int) -> Parallelism:
        """Return the layout that the framework's sharding settings produce on `gpus` devices."""

    def refusals(self, benchmark: Benchmark) -> list[RequestError]:
        """Return why this framework cannot run the benchmark; empty if it can."""

    def storage(self, benchmark: Benchmark) -> Storage:
        """Return how the framework stores the state of a training step, for the estimate of memory."""

    def environment(self, engine: str, platform: str = "cpu") -> EnvironmentSpec:
        """Return the environment of an engine, with the lock files for a platform (Hardware.platform)."""

    def plan(self, benchmark: Benchmark) -> Plan: ...

    def read_phase(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:
        """Return the records that the workers of one phase wrote, complete or partial."""

    def follow(self, benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
        """A function that gives the steps written since it was last called, while the phase runs."""

    def log_formats(self) -> tuple[LogFormat, ...]:
        """The foreign logs of the framework that can be read."""


# --- optional capabilities, checked with isinstance ----------------------------------------------


@runtime_checkable
class RefusesHardware(Protocol):
    """Engines that run only on some kinds of devices."""

    def refuses_hardware(self, engine: str, hardware: Hardware) -> RequestError | None:
        """Return why no recipe of the engine can run on a kind of device; None if one can."""


@runtime_checkable
class RanksLayouts(Protocol):
    """Layouts that no recipe states: plan.py layouts."""

    def layout_settings_for(
        self, engine: str, parallelism: Parallelism, gpus: int, hardware: Hardware
    ) -> dict[str, Scalar] | None:
        """The settings that make a layout, as --set takes them; None where the framework has no such layout."""


@runtime_checkable
class TrainsAdapters(Protocol):
    """--task=lora."""

    def lora(self, knobs: dict[str, Scalar]) -> Lora:
        """Return the adapters that the framework's settings describe."""

    def lora_settings_for(self, engine: str, wanted: Lora) -> dict[str, Scalar]:
        """Return the settings for these adapters. Raise RequestError if the framework does not support them."""


@runtime_checkable
class Profiles(Protocol):
    """--profile."""

    profiles: frozenset[str]  # the profilers that its programs can run under


@runtime_checkable
class GuidedByProfiles(Protocol):
    """--pgle."""

    pgle_ways: frozenset[str]  # in addition to `off`

    def profile_key(self, benchmark: Benchmark) -> str | None:
        """Return the key of the profile that this benchmark reads, or None. Equal keys mean equal programs."""


@runtime_checkable
class CompilerFlags(Protocol):
    """--set=xla_FLAG, checked before a run."""

    def flag_group(self, name: str, hardware: Hardware) -> FlagGroup:
        """Return the flags of --set=xla_group=NAME for a device. Raise RequestError if it has no such group."""

    def flags_check(self, flags: list[str]) -> FlagsCheck:
        """Return how to check flags (each --name=value)."""


@runtime_checkable
class MeasuresPeaks(Protocol):
    """launch/peak.py."""

    def peak_program(self, engine: str, platform: str) -> SideProgram | None:
        """Measures matmuls: `{phase_dir}/request.json` is a peaks.PeakRequest, its report a peaks.PeakReport."""


@runtime_checkable
class ProvesWork(Protocol):
    """Comparison of the results of two frameworks."""

    def work_program(self, benchmark: Benchmark) -> SideProgram | None:
        """Trains a few steps on given tokens, from given weights or its own, and says what it computed. `{phase_dir}`
        holds a work.WorkRequest as request.json and CASE/given.npz; it writes CASE/arrays.npz and a work.WorkReport.
        """


@runtime_checkable
class CompilesAhead(Protocol):
    """plan.py compile."""

    def compile_job(self, name: str, benchmark: Benchmark) -> "Job":
        """Return the step to compile. Raise RequestError if it cannot be compiled, such as for an unknown GPU."""

    def compile_program(self) -> SideProgram:
        """Compiles training steps. `{phase_dir}/request.json` is a list of compiled.Job. For the job at index N it
        writes N/report.json, a compiled.CompileReport, or N/failed.json with its exit code, and its output to N/log.
        """


@runtime_checkable
class Checks(Protocol):
    """A program that a cluster's job runs first, on one node with its GPUs: it imports the framework and builds the
    run's configuration. Its last line is `stepmark check: ok {json}`, exit code 0; or `stepmark check: what; why;
    next: what to do`, exit code 1 (benchmarks/runs/first_check.py reads it).
    """

    def check_phase(self, benchmark: Benchmark) -> Phase | None:
        """Return the phase `check`; None if the engine does not have one."""


@runtime_checkable
class NeedsTransformerEngine(Protocol):
    """A framework with settings that need Transformer Engine, which its virtual environment lacks."""

    def needs_transformer_engine(self, benchmark: Benchmark) -> Mapping[str, str]:
        """Return each setting that needs it -> the flag that avoids it."""


@runtime_checkable
class ReadsHub(Protocol):
    """An engine whose program reads a Hugging Face repository by its name. A job may have no token and no internet:
    launch/setup.py --site fetches the files once (benchmarks/assets.py).
    """

    def hub_repository(self, engine: str, model: str) -> "Repository | None":
        """Return the repository it reads for a model, or None."""


Capability = TypeVar("Capability")


def require_capability(backend: Backend, capability: type[Capability], otherwise: str, where: str) -> Capability:
    """The backend as one with a capability. `otherwise` says what one without it does not do."""
    if isinstance(backend, capability):
        return backend
    raise RequestError(f"{backend.title} {otherwise}", where=where, next_command=LIST_COMMAND)


# --- finding them ---------------------------------------------------------------------------------


@cache
def installed_backends() -> dict[str, str]:
    """Return the installed backends by name, each as module:object. The first of a name on sys.path wins.

    importlib.metadata finds the same, but importing it takes a tenth of the time limit of a dry run.
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
    """Every installed backend by name."""
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
            why=f"{titles}; another is a package that registers in the entry point group '{ENTRY_POINT_GROUP}'",
            next_command=f"--backend={owner}" if owner else LIST_COMMAND,
        )
    return _load(found)
