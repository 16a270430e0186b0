"""Which runtime a run has: the one that was typed, else the site's. Pure."""

import msgspec

from benchmarks.errors import RequestError, UnknownName
from benchmarks.values import Site

RUNTIMES = ("venv", "container", "python")


def in_force(site: Site, runtime: str | None, python: str | None) -> Site:
    """The site with the typed runtime and interpreter laid over it, less what belongs to its other runtimes."""
    if runtime is not None and runtime not in RUNTIMES:
        raise UnknownName(f"unknown runtime '{runtime}'", "runtime", runtime, RUNTIMES, where="--runtime")
    if python is not None and runtime not in (None, "python"):
        where = f"--runtime={runtime} --python={python}"
        raise RequestError("--python goes with --runtime=python", where=where, next_command="one of the two")
    chosen = "python" if python is not None else runtime or site.runtime
    interpreter = (python or site.python) if chosen == "python" else None
    container = site.container if chosen == "container" else None
    if chosen == "container" and site.slurm is not None and container is None:
        raise RequestError(
            f"site '{site.name}' says nothing of containers",
            where=f"--runtime=container --site={site.name}",
            why="on a cluster its file says where the images are, in the section 'container'",
            next_command=f"leave --runtime out: the site's is {site.runtime}; or copy the section of "
            "configs/sites/example_pyxis.yml",
        )
    if chosen == "python" and interpreter is None:
        what = f"--runtime=python needs an interpreter, and site '{site.name}' names none"
        cure = "--python=PATH of one that has the framework installed"
        raise RequestError(what, where="--runtime=python", next_command=cure)
    return msgspec.structs.replace(
        site,
        runtime=chosen,
        container=container,
        images=site.images if chosen == "container" else {},
        python=interpreter,
        typed=[flag for flag, typed in (("--runtime", runtime), ("--python", python)) if typed is not None],
    )
