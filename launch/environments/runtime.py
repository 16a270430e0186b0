"""The interface of runtimes, which start the programs of a run. selection.py chooses the runtime of a benchmark.

venvs.py implements the interface for Stepmark's own environments, container.py for the containers of this machine,
image_files.py for the images of a cluster, and own_python.py for the user's interpreters.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from benchmarks.backend import EnvironmentSpec
from benchmarks.values import Benchmark, Phase

Origin = dict[str, str | None]  # the facts about its environment that a run records


class Containers(Protocol):
    """Puts each task of a run into its own container."""

    def task(
        self, phase: Phase, phase_dir: Path, rank: int, command: list[str], environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]: ...
    def end(self, phase_dir: Path, ranks: int) -> None: ...
    def exit_code(self, code: int) -> int: ...


class Runtime(ABC):
    """The runtime of one benchmark at the benchmark's site."""

    def __init__(self, benchmark: Benchmark, spec: EnvironmentSpec) -> None:
        self.benchmark, self.spec = benchmark, spec

    @abstractmethod
    def refuse(self) -> None:
        """Raise RequestError if the runtime cannot be used. Create nothing."""

    @abstractmethod
    def planned_python(self) -> str:
        """Return the path of the Python for a job script, before the environment exists."""

    @abstractmethod
    def prepare(self) -> tuple[str, Origin]:
        """Create or pull what is missing, and return the Python with its origin."""

    def image_file(self) -> Path | None:
        """Return the image that a cluster's job starts; None without a container. Raise RequestError if unknown."""
        return None

    def identity(self) -> str | None:
        """Return a digest of the image or packages; empty if lock files pin the packages, None if not known yet."""
        return ""

    def containers(self, run: Path) -> Containers | None:  # noqa: ARG002
        """Return the Containers that start tasks on this machine; None if tasks run as plain processes."""
        return None

    def preview(self, run: Path) -> str:  # noqa: ARG002
        """Return the text for a dry run: the command of a container, or the environment that is created first."""
        return ""

    def installed_python(self) -> Path | None:
        """Return a Python on this machine that has the framework; None if it is not installed yet."""
        return None
