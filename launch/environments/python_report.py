"""The report of a Python: its version, its machine and its packages.

launch/inside/python_check.py is the program that reports, on this machine, on a node or in an image.
"""

import contextlib
import hashlib
import subprocess
from collections.abc import Collection
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.backend import EnvironmentSpec
from benchmarks.values import Value
from launch.environments.container_programs import last_line
from launch.machine import processes

PROGRAM = Path(__file__).parents[1] / "inside" / "python_check.py"
OLDEST = (3, 11)  # the first version with -P, with which the workers are started


class PythonReport(Value, frozen=True):
    """The report of one Python."""

    machine: str  # x86_64, aarch64
    python: str
    packages: dict[str, str]  # name -> version
    missing: list[str]  # requested modules that this Python does not have

    def problem(self, modules: Collection[str]) -> str:
        """Return why a worker with these modules cannot run in this Python; empty if no reason is known."""
        for module in self.missing:
            if module in modules:
                return f"its Python {self.python} has no module '{module}'"
        if tuple(int(part) for part in self.python.split(".")[:2]) < OLDEST:
            return f"its Python is {self.python}, but must be {OLDEST[0]}.{OLDEST[1]} or newer"
        return ""

    def origin(self) -> dict[str, str | None]:
        """Return the origin of this Python, which a run records."""
        packages = " ".join(f"{name}=={version}" for name, version in self.packages.items())
        return {
            "python_version": self.python,
            "packages": packages,
            "packages_sha256": hashlib.sha256(packages.encode()).hexdigest(),
        }


def module_of(spec: EnvironmentSpec) -> str:
    """Return the package that the interpreter must be able to import, from the environment's import check."""
    return spec.import_check.partition(".")[0]


@cache
def ask_python(
    command: tuple[str, ...], seconds: float, variables: tuple[tuple[str, str], ...]
) -> PythonReport | str:
    """Run `command`, which starts a Python with PROGRAM. Return its report, or why it failed."""
    try:
        done = processes.ask(command, seconds, dict(variables))
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    for line in reversed(done.stdout.splitlines()):
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(line, type=PythonReport)
    return last_line(done)
