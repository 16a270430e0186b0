"""The interface of runtimes, which start the programs of a run. selection.py chooses one for a benchmark.

venvs.py holds Stepmark's own environments, container.py the containers of this machine, image_files.py the images of
a cluster, and own_python.py the user's interpreters.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from benchmarks.backend import EnvironmentSpec
from benchmarks.values import Benchmark, Phase

Origin = dict[str, str | None]  # what a run writes down of its environment


class Containers(Protocol):
    """Puts each task of a run into its own container."""

    def task(
        self, phase: Phase, phase_dir: Path, rank: int, command: list[str], environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]: ...
    def end(self, phase_dir: Path, ranks: int) -> None: ...
    def exit_code(self, code: int) -> int: ...


class Runtime(ABC):
    """The runtime of one benchmark at its site."""

    def __init__(self, benchmark: Benchmark, spec: EnvironmentSpec) -> None:
        self.benchmark, self.spec = benchmark, spec

    @abstractmethod
    def refuse(self) -> None:
        """Raise RequestError if it is missing or known to be unfit. Makes nothing."""

    @abstractmethod
    def planned_python(self) -> str:
        """Return the Python as a job script names it before anything is made."""

    @abstractmethod
    def prepare(self) -> tuple[str, Origin]:
        """Make what is missing, and return the Python with its origin."""

    def image_file(self) -> Path | None:
        """Return the image that a cluster's job starts; None if it starts none. RequestError if none is known."""
        return None

    def identity(self) -> str | None:
        """Return the identity of its programs beyond their names; None if it is not known yet."""
        return ""

    def containers(self, run: Path) -> Containers | None:  # noqa: ARG002
        """Return what puts the tasks of a run into containers on this machine; None if they are processes."""
        return None

    def preview(self, run: Path) -> str:  # noqa: ARG002
        """Return what a dry run shows of it: how a container is started, or what is made first."""
        return ""

    def installed_python(self) -> Path | None:
        """Return the Python on this machine that has the framework; None if it is not installed yet."""
        return None
