"""What a Python said of itself (preflight/python_check.py): read, judged, and as a run's provenance has it."""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from benchmarks.backend import EnvironmentSpec
from benchmarks.values import Value

PROGRAM = Path(__file__).parents[1] / "inside" / "python_check.py"
OLDEST = (3, 11)  # the workers are started with -P, which came with it


class AskedPython(Value, frozen=True):
    """The answer of one Python."""

    machine: str  # x86_64, aarch64
    python: str
    packages: dict[str, str]  # name -> version
    missing: list[str]  # of the modules that were asked for


def module_of(spec: EnvironmentSpec) -> str:
    """What is asked for: the package that holds the module whose import proves an environment."""
    return spec.import_check.partition(".")[0]


def read(text: str) -> AskedPython | None:
    """The answer in a program's output; None where it gave none."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return msgspec.json.decode(line, type=AskedPython)
            except msgspec.DecodeError:
                return None
    return None


def problem(asked: AskedPython, modules: Collection[str]) -> str:
    """Why no worker that needs one of the modules can run with it; empty where one may."""
    for module in asked.missing:
        if module in modules:
            return f"its Python {asked.python} has no module '{module}'"
    if tuple(int(part) for part in asked.python.split(".")[:2]) < OLDEST:
        return f"its Python is {asked.python}, {OLDEST[0]}.{OLDEST[1]} or newer is needed"
    return ""


def about(asked: AskedPython) -> Mapping[str, str]:
    """What a run writes down of it."""
    packages = " ".join(f"{name}=={version}" for name, version in asked.packages.items())
    return {
        "python_version": asked.python,
        "packages": packages,
        "packages_sha256": hashlib.sha256(packages.encode()).hexdigest(),
    }
