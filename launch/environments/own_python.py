"""The user's own interpreter, from a site or --python: refuse an unusable interpreter, and record the origin."""

import os
import sys
from pathlib import Path

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import RequestError
from benchmarks.values import Site
from launch.environments.python_report import PROGRAM, PythonReport, ask_python, module_of
from launch.environments.runtime import Origin, Runtime
from launch.machine import processes

SECONDS = 120  # the first read of hundreds of packages from a shared disk is slow


class OwnPython(Runtime):
    """The interpreter that the site names for the engine."""

    def refuse(self) -> None:
        refuse(self.benchmark.site, self.spec, self.benchmark.engine)

    def planned_python(self) -> str:
        return str(python_of(self.benchmark.site, self.benchmark.engine))

    def prepare(self) -> tuple[str, Origin]:
        return self.planned_python(), origin(self.benchmark.site, self.spec, self.benchmark.engine)

    def identity(self) -> str:
        return origin(self.benchmark.site, self.spec, self.benchmark.engine).get("packages_sha256") or ""

    def installed_python(self) -> Path | None:
        python = Path(self.planned_python())
        return python if python.is_file() and os.access(python, os.X_OK) else None


def python_of(site: Site, engine: str) -> Path:
    """Return the Python that the site's file names for an engine. Raise RequestError if it names no such Python."""
    python = site.python if isinstance(site.python, str) else (site.python or {}).get(engine)
    if not python:
        raise RequestError(
            f"site '{site.name}' has no Python for engine '{engine}'",
            where=f"the file of site {site.name}: python",
            why=f"the file names a Python for: {', '.join(site.python or {}) or 'no engine'}; "
            f"add {{{engine}: /PATH/bin/python}}",
        )
    return Path(python)


def refuse(site: Site, spec: EnvironmentSpec, engine: str) -> None:
    """Raise RequestError if, as far as this machine can see, no run could start with the site's Python."""
    python = python_of(site, engine)
    if not python.is_file() or not os.access(python, os.X_OK):
        raise _refusal(site, python, "does not exist or is not executable", "")
    # Check the folder, not the link's target: `python` of a virtual environment may link to each node's own Python.
    shared = [Path(folder).resolve() for folder in site.slurm.shared_folders] if site.slurm else [Path("/")]
    if not any(python.parent.resolve().is_relative_to(folder) for folder in shared):
        why = f"shared_folders of the site: {', '.join(map(str, shared))}"
        raise _refusal(site, python, "is not in a shared folder", why)
    report = _ask(python, module_of(spec))
    if isinstance(report, str):
        if site.slurm is None:
            raise _refusal(site, python, "does not answer", report)
        print(f"note: {python}: {report}; the first phase of the job checks it", file=sys.stderr)
        return
    why = report.problem([module_of(spec)])
    if not why and spec.gpu_packages and not any(name in report.packages for name in spec.gpu_packages):
        why = f"GPU runs need one of the packages {', '.join(spec.gpu_packages)}"
    if why:
        raise _refusal(site, python, f"cannot run '{engine}': {why}", f"it has {len(report.packages)} packages")


def origin(site: Site, spec: EnvironmentSpec, engine: str) -> Origin:
    """Return the origin of the site's Python, which a run records."""
    python = python_of(site, engine)
    report = _ask(python, module_of(spec))
    known: Origin = {"python_version": None, "not_asked": report} if isinstance(report, str) else report.origin()
    name = "python of --python" if "--python" in site.typed else f"python of site {site.name}"
    return {"name": name, "python": str(python), **known}


def _ask(python: Path, module: str) -> PythonReport | str:
    """Return the report of a Python, or why it does not run on this machine. It may still run on the nodes."""
    report = ask_python(
        (str(python), str(PROGRAM), module), SECONDS, tuple(processes.inherited_environment().items())
    )
    return f"it does not run on this machine: {report}" if isinstance(report, str) else report


def _refusal(site: Site, python: Path, what: str, why: str) -> RequestError:
    return RequestError(
        f"the interpreter {what}",
        where=f"{python} (of site {site.name})",
        why=(why and f"{why}; ") + "pass --python=PATH of a Python that has the framework",
    )
