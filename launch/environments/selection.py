"""Which runtime a benchmark has: the one place that tells a site's runtimes apart."""

from pathlib import Path
from typing import NoReturn

from benchmarks.backend import Backend, backends
from benchmarks.errors import RequestError, nearest
from benchmarks.values import Benchmark, Site
from launch.environments.runtime import Origin, Runtime


class OnlyInContainer(Runtime):
    """An engine that exists only in an image, at a site without containers: everything of it is refused."""

    def refuse(self) -> NoReturn:
        site, engine = self.benchmark.site, self.benchmark.engine
        raise RequestError(
            f"'{engine}' runs only in its container, and site '{site.name}' has no container runtime",
            where=f"--site={site.name}",
            why=f"its runtime is {site.runtime}, and the program exists only in the image",
            next_command="--runtime=container, or another --site or --engine",
        )

    def image_file(self) -> Path:
        self.refuse()

    def planned_python(self) -> str:
        self.refuse()

    def prepare(self) -> tuple[str, Origin]:
        self.refuse()


def runtime_of(benchmark: Benchmark, backend: Backend, platform: str | None = None) -> Runtime:
    """Return the runtime of a benchmark; `platform` asks for that of other devices."""
    spec = backend.environment(benchmark.engine, platform or benchmark.hardware.platform)
    runtime = benchmark.site.runtime
    # An interpreter may have the framework for any devices, whatever Stepmark's own lock files are for.
    own = backend.environment(benchmark.engine) if runtime == "python" else spec
    if runtime != "container" and not own.locks:
        return OnlyInContainer(benchmark, spec)
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
