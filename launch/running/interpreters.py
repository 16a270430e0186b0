"""The Pythons of sites and images: asked what they have, refused where no run could start, written down.

The program that asks is launch/inside/python_check.py.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import RequestError
from benchmarks.reading.shown_lines import shown_line
from benchmarks.values import Site, Value
from launch.running import local

NO_PYTHON = "it ran, but it is not a Python that runs a program"
SECONDS = 120  # a first look at hundreds of packages on a shared disk
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


def answer_in(text: str) -> AskedPython | None:
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


def provenance_of(asked: AskedPython) -> Mapping[str, str]:
    """What a run writes down of it."""
    packages = " ".join(f"{name}=={version}" for name, version in asked.packages.items())
    return {
        "python_version": asked.python,
        "packages": packages,
        "packages_sha256": hashlib.sha256(packages.encode()).hexdigest(),
    }


@cache
def ask(python: Path, module: str) -> AskedPython | str:
    """What it says of itself; why it says nothing where it does not run on this machine (its nodes may be others)."""
    try:
        done = local.asked([str(python), str(PROGRAM), module], SECONDS, local.inherited_environment())
    except subprocess.TimeoutExpired:
        return f"it gave no answer within {SECONDS} s"
    except OSError as error:
        return f"it does not run on this machine: {error.strerror or error}"
    answer = answer_in(done.stdout)
    if answer is None and done.returncode == 0:
        said = (done.stdout.strip().splitlines() or ["nothing"])[-1]
        return f"{NO_PYTHON}; it printed: {shown_line(said.encode())}"
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return answer or f"it does not run on this machine: {last}"


def named(site: Site, engine: str) -> Path:
    """The site's Python for an engine."""
    found = site.python if isinstance(site.python, str) else (site.python or {}).get(engine)
    if not found:
        raise RequestError(
            f"site '{site.name}' names no Python for engine '{engine}'",
            where=f"the file of site {site.name}: python",
            why=f"it names one for: {', '.join(site.python or {}) or 'none'}",
            next_command=f"`python: {{{engine}: /PATH/bin/python}}`, or --engine with one of these",
        )
    return Path(found)


def refuse(site: Site, spec: EnvironmentSpec, engine: str) -> None:
    """RequestError where no run could start with it, as far as it can be known from this machine."""
    python = named(site, engine)
    if not python.is_file() or not os.access(python, os.X_OK):
        what = "is not there" if not python.exists() else "is no program" if python.is_dir() else "cannot be executed"
        raise _refusal(site, python, what, "")
    # By its folder: what a virtual environment's `python` links to may be each node's own.
    shared = [Path(folder).resolve() for folder in site.slurm.shared_folders] if site.slurm else [Path("/")]
    if not any(python.parent.resolve().is_relative_to(folder) for folder in shared):
        why = f"what every node sees: {', '.join(map(str, shared))} (shared_folders of the site)"
        raise _refusal(site, python, "is on no shared folder", why)
    module = module_of(spec)
    asked = ask(python, module)
    if isinstance(asked, str):
        if site.slurm is None or asked.startswith(NO_PYTHON):
            raise _refusal(site, python, "gives no answer", asked)
        print(f"note: {python}: {asked}; the first phase of the job looks at it", file=sys.stderr)
        return
    seen = f"it has {len(asked.packages)} packages"
    if why := problem(asked, [module]):
        raise _refusal(site, python, f"cannot run '{engine}': {why}", seen)
    if spec.gpu_packages and not any(name in asked.packages for name in spec.gpu_packages):
        none = f"it has none of {', '.join(spec.gpu_packages)}"
        raise _refusal(site, python, f"cannot run '{engine}' on a GPU: {none}", seen)


def _refusal(site: Site, python: Path, what: str, why: str) -> RequestError:
    by_flag = "--python" in site.typed
    shared = " on a shared folder" if site.slurm else ""
    cure = f"--python=PATH of an interpreter{shared} that has the framework installed"
    in_file = f"; or `python:` in the site's file, which python launch/setup.py --site={site.name} looks at"
    whose = "the interpreter of --python" if by_flag else f"the Python of site '{site.name}'"
    return RequestError(
        f"{whose} {what}",
        where=f"--python={python}" if by_flag else f"the file of site {site.name}: python: {python}",
        why=why,
        next_command=cure if by_flag else cure + in_file,
    )


def origin(site: Site, spec: EnvironmentSpec, engine: str) -> dict[str, str | None]:
    """What a run writes down of it."""
    python = named(site, engine)
    asked = ask(python, module_of(spec))
    known: Mapping[str, str | None] = {"python_version": None, "not_asked": str(asked)}
    if isinstance(asked, AskedPython):
        known = provenance_of(asked)
    name = "python of --python" if "--python" in site.typed else f"python of site {site.name}"
    return {"name": name, "python": str(python), **known}
