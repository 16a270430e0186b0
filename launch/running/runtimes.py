"""What the programs of a run are started with at a site: the Python of a container's image, one that the site names,
or that of an environment which Stepmark makes. The one place that tells the site's `runtime` apart for a run.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.backend import EnvironmentSpec, backends, find_backend
from benchmarks.errors import RequestError, nearest
from benchmarks.request import images
from benchmarks.values import Benchmark, Site
from launch.command_line import places
from launch.environments import venvs
from launch.running import interpreters

if TYPE_CHECKING:
    from launch.containers import running


def refuse_unknown_engines(site: Site) -> None:
    """RequestError for a mistyped engine in a site's file, which would otherwise have no effect."""
    pythons = site.python if isinstance(site.python, dict) else {}
    if not (site.images or pythons):
        return
    known = [engine for backend in backends().values() for engine in backend.engines]
    for key, named in (("images", site.images), ("python", pythons)):
        for engine in set(named) - set(known):
            where = f"the file of site {site.name}: {key}: {engine}"
            raise RequestError(f"unknown engine '{engine}': {nearest(engine, known)}", where=where)


def in_container_here(benchmark: Benchmark) -> bool:
    """Whether it runs in containers that this machine starts by itself; on a cluster pyxis starts them."""
    return benchmark.site.runtime == "container" and benchmark.site.slurm is None


def image_of(benchmark: Benchmark, spec: EnvironmentSpec) -> Path | None:
    """The image's file at a cluster with containers, else None. RequestError where the engine cannot run there."""
    site = benchmark.site
    # An interpreter may have the framework for any devices, whatever Stepmark's own lock files are for.
    own = find_backend(benchmark.backend).environment(benchmark.engine) if site.runtime == "python" else spec
    if site.runtime != "container" and not own.locks:
        elsewhere = "" if site.slurm is None else places.configs().way_on(benchmark.hardware.name, "container")
        raise RequestError(
            f"'{benchmark.engine}' runs only in its container, and site '{site.name}' has no container runtime",
            where=f"--site={site.name}",
            why=f"its runtime is {site.runtime}, and the program exists only in the image",
            next_command=f"{elsewhere or '--runtime=container'}; or another --engine",
        )
    return None if in_container_here(benchmark) else images.image_of(benchmark, spec.image)


def refuse(benchmark: Benchmark, spec: EnvironmentSpec) -> None:
    """RequestError where what the site names is not there, or is known to be unfit. Makes nothing."""
    image = image_of(benchmark, spec)
    if in_container_here(benchmark):
        from launch.containers import running

        running.refuse(benchmark, spec)
    elif image is not None:
        from launch.sites import image_files

        image_files.refuse(image, benchmark, interpreters.module_of(spec))
    elif benchmark.site.runtime == "python":
        interpreters.refuse(benchmark.site, spec, benchmark.engine)
    elif benchmark.site.slurm is None and benchmark.hardware.platform == "cuda":
        from benchmarks.machine import refusals
        from launch.running import machine_gpus

        too_old = refusals.old_driver(spec, machine_gpus.found())
        if too_old is not None:
            raise too_old


def python_to_be(benchmark: Benchmark, spec: EnvironmentSpec) -> str:
    """The Python as a job script names it before anything is made or asked."""
    if benchmark.site.runtime == "container":
        return spec.image_python
    if benchmark.site.runtime == "python":
        return str(interpreters.named(benchmark.site, benchmark.engine))
    return str(venvs.python_of(spec) or venvs.python_to_be(spec))


def ready(benchmark: Benchmark, spec: EnvironmentSpec) -> tuple[str, dict[str, str | None]]:
    """The Python, made first if need be, and what is written down of where it is from."""
    image = image_of(benchmark, spec)
    if in_container_here(benchmark):
        from launch.containers import running

        gpus = running.gpus_of(benchmark)
        return spec.image_python, running.ready(benchmark.site, benchmark.image, spec, gpus)
    if image is not None:
        from launch.sites import image_files

        return spec.image_python, image_files.about(image, benchmark.image, spec.name)
    if benchmark.site.runtime == "python":
        return str(interpreters.named(benchmark.site, benchmark.engine)), interpreters.origin(
            benchmark.site, spec, benchmark.engine
        )
    python = venvs.ensure(spec)
    return str(python), venvs.origin(spec, python)


def containers(benchmark: Benchmark, run: Path) -> "running.Containers | None":
    """What puts the tasks of a run into containers on this machine; None where they are processes."""
    if not in_container_here(benchmark):
        return None
    from launch.containers import running

    return running.Containers(running.box_of(benchmark, run))


def preview(benchmark: Benchmark, spec: EnvironmentSpec, run: Path) -> str:
    """What a dry run on this machine says of its runtime: how a container is started, what is made first."""
    if in_container_here(benchmark):
        from launch.containers import running

        return "\n".join(["container", *(f"    {word}" for word in running.command_words(benchmark, run))])
    if benchmark.site.runtime == "venv" and spec.locks and venvs.python_of(spec) is None:
        lock = spec.locks[0]
        return f"environment '{spec.name}' is made on first use from {lock.path.name}, about {lock.size_gb:g} GB"
    return ""


def python_here(benchmark: Benchmark, spec: EnvironmentSpec) -> Path | None:
    """The Python that a program can be asked with on this machine; None where there is none yet, or it is inside an
    image: then that of Stepmark's own environment, which may answer otherwise.
    """
    if benchmark.site.runtime == "python":
        python = interpreters.named(benchmark.site, benchmark.engine)
        return python if python.is_file() and os.access(python, os.X_OK) else None
    try:
        return venvs.python_of(spec) if spec.locks else None
    except RequestError:  # there is no place for environments: whoever needs one will say so
        return None
