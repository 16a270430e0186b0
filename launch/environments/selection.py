"""Choose the runtime of a benchmark. Only this module distinguishes the runtimes of sites."""

from benchmarks.backend import Backend, backends
from benchmarks.errors import RequestError, nearest
from benchmarks.values import Benchmark, Site
from launch.environments.runtime import Runtime


def runtime_of(benchmark: Benchmark, backend: Backend, platform: str | None = None) -> Runtime:
    """Return the runtime of a benchmark; `platform` overrides the platform of the benchmark's hardware.

    Raise RequestError if the engine exists only in an image and the site does not use containers.
    """
    spec = backend.environment(benchmark.engine, platform or benchmark.hardware.platform)
    runtime = benchmark.site.runtime
    # The user's interpreter may have the framework for any device, so no lock file for this platform is needed.
    own = backend.environment(benchmark.engine) if runtime == "python" else spec
    if runtime != "container" and not own.locks:
        raise RequestError(
            f"'{benchmark.engine}' needs a container, and site '{benchmark.site.name}' has runtime {runtime}",
            where=f"--site={benchmark.site.name}",
            why="the program exists only as an image",
            next_command="--runtime=container",
        )
    if runtime == "venv":
        from launch.environments.venvs import Venv

        return Venv(benchmark, spec)
    if runtime == "python":
        from launch.environments.own_python import OwnPython

        return OwnPython(benchmark, spec)
    if benchmark.site.slurm is None:
        from launch.environments.container import MachineContainer

        return MachineContainer(benchmark, spec)
    from launch.environments.image_files import ClusterContainer

    return ClusterContainer(benchmark, spec)


def refuse_unknown_engines(site: Site) -> None:
    """Raise RequestError for a mistyped engine in a site's file, which would otherwise have no effect."""
    pythons = site.python if isinstance(site.python, dict) else {}
    if not (site.images or pythons):
        return
    known = [engine for backend in backends().values() for engine in backend.engines]
    for key, named in (("images", site.images), ("python", pythons)):
        for engine in set(named) - set(known):
            where = f"the file of site {site.name}: {key}: {engine}"
            raise RequestError(f"unknown engine '{engine}': {nearest(engine, known)}", where=where)
