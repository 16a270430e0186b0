"""The Python that a site names (runtime: python): refused where it is not there, and asked what it has."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import RequestError
from benchmarks.logs.log_endings import shown_line
from benchmarks.values import Site
from launch.running import asked_python, local
from launch.running.asked_python import AskedPython

NO_PYTHON = "it ran, but it is not a Python that runs a program"
SECONDS = 120  # a first look at hundreds of packages on a shared disk


def typed(site: Site) -> bool:
    """Whether it was named by --python, and not by the site's file."""
    return "--python" in site.typed


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
    title = "the interpreter of --python" if typed(site) else f"the Python of site '{site.name}'"
    if not python.is_file() or not os.access(python, os.X_OK):
        what = "is not there" if not python.exists() else "is no program" if python.is_dir() else "cannot be executed"
        raise _refusal(site, python, f"{title} {what}", "")
    _refuse_unshared(site, python, title)
    module = asked_python.module_of(spec)
    asked = ask(python, module)
    if isinstance(asked, str) and (site.slurm is None or asked.startswith(NO_PYTHON)):
        raise _refusal(site, python, f"{title} gives no answer", asked)
    if isinstance(asked, str):
        print(f"note: {python}: {asked}; the first phase of the job looks at it", file=sys.stderr)
    elif why := asked_python.problem(asked, [module]):
        raise _refusal(site, python, f"{title} cannot run '{engine}': {why}", _seen(asked))
    elif spec.gpu_packages and not any(name in asked.packages for name in spec.gpu_packages):
        none = f"it has none of {', '.join(spec.gpu_packages)}"
        raise _refusal(site, python, f"{title} cannot run '{engine}' on a GPU: {none}", _seen(asked))


def _refuse_unshared(site: Site, python: Path, title: str) -> None:
    """By its folder: what a virtual environment's `python` links to may be each node's own."""
    shared = [Path(folder).resolve() for folder in site.slurm.shared_folders] if site.slurm else [Path("/")]
    if not any(python.parent.resolve().is_relative_to(folder) for folder in shared):
        why = f"what every node sees: {', '.join(map(str, shared))} (shared_folders of the site)"
        raise _refusal(site, python, f"{title} is on no shared folder", why)


def _refusal(site: Site, python: Path, what: str, why: str) -> RequestError:
    place = " on a shared folder" if site.slurm else ""
    return RequestError(
        what,
        where=f"--python={python}" if typed(site) else f"the file of site {site.name}: python: {python}",
        why=why,
        next_command=f"--python=PATH of an interpreter{place} that has the framework installed"
        if typed(site)
        else f"`python:` with the path of an interpreter{place} that has the framework installed; "
        f"python launch/setup.py --site={site.name} looks at it",
    )


def _seen(asked: AskedPython) -> str:
    names = ("jax", "jaxlib", "maxtext", "torch", "nemo-toolkit", "megatron-core", "transformer-engine")
    there = [f"{name} {asked.packages[name]}" for name in names if name in asked.packages]
    return f"of {len(asked.packages)} packages that it has: {', '.join(there) or 'no framework'}"


def origin(site: Site, spec: EnvironmentSpec, engine: str) -> dict[str, str | None]:
    """What a run writes down of it."""
    python = named(site, engine)
    asked = ask(python, asked_python.module_of(spec))
    known = (
        asked_python.about(asked) if isinstance(asked, AskedPython) else {"python_version": None, "not_asked": asked}
    )
    name = "python of --python" if typed(site) else f"python of site {site.name}"
    return {"name": name, "python": str(python), **known}


@cache
def ask(python: Path, module: str) -> AskedPython | str:
    """What it says of itself; why it says nothing where it does not run on this machine (its nodes may be others)."""
    command = [str(python), str(asked_python.PROGRAM), module]
    try:
        done = local.asked(command, SECONDS, local.inherited_environment())
    except subprocess.TimeoutExpired:
        return f"it gave no answer within {SECONDS} s"
    except OSError as error:
        return f"it does not run on this machine: {error.strerror or error}"
    answer = asked_python.read(done.stdout)
    if answer is None and done.returncode == 0:
        said = (done.stdout.strip().splitlines() or ["nothing"])[-1]
        return f"{NO_PYTHON}; it printed: {shown_line(said.encode())}"
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return answer or f"it does not run on this machine: {last}"
