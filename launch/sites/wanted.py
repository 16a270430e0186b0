"""What a site is set up for: the engines that were asked for, what each runs in, and the images of the nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.backend import EnvironmentSpec, backends, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, nearest
from benchmarks.machine import images
from benchmarks.values import Architecture, Hardware, ImageNames, Site, Value
from launch.running import asked_python


@dataclass(frozen=True)
class Filters:
    """Which engines a site is set up for; None: all of them."""

    backend: str | None = None
    engine: str | None = None
    model: str | None = None


def platforms(site: Site, configs: Configs) -> list[str]:
    """Whose environments a site needs; a CPU's where it names no devices."""
    hardware = site.slurm.hardware if site.slurm else []
    if site.runtime != "venv":
        return ["cpu"]  # an image is the same whatever the devices
    return sorted({configs.hardware(name).platform for name in hardware}) or ["cpu"]


def specs(filters: Filters, configs: Configs, platforms: Sequence[str] = ("cpu",)) -> dict[str, EnvironmentSpec]:
    """ "backend/engine" -> what it runs in, of the engines that the filters leave."""
    chosen = [find_backend(filters.backend)] if filters.backend else list(backends().values())
    all_engines = sorted({engine for backend in chosen for engine in backend.engines})
    if filters.engine is not None and filters.engine not in all_engines:
        hint = nearest(filters.engine, all_engines)
        raise RequestError(f"unknown engine '{filters.engine}': {hint}", where="--engine")
    found = {
        f"{backend.name}/{engine}" + (f" ({platform})" if len(platforms) > 1 else ""): backend.environment(
            engine, platform
        )
        for platform in platforms
        for backend in chosen
        for engine in backend.engines
        if filters.engine in (None, engine) and _trains(filters.model, backend.name, engine, configs)
        if filters.engine or filters.model or not backend.environment(engine).only_by_name
    }
    if not found:
        raise RequestError(f"no engine has a recipe for {filters.model}", where="--model, --backend and --engine")
    return found


def _trains(model: str | None, backend: str, engine: str, configs: Configs) -> bool:
    if model is None:
        return True
    name = configs.model(model).name
    mine = [recipe for recipe in configs.recipes() if (recipe.backend, recipe.engine) == (backend, engine)]
    return any(name in recipe.models or "*" in recipe.models for recipe in mine)


def devices_of(site: Site, configs: Configs) -> list[Hardware]:
    """The devices of the site's nodes."""
    return [configs.hardware(name) for name in site.slurm.hardware] if site.slurm else []


def engine_of(name: str) -> str:
    """ "backend/engine (platform)" -> engine."""
    return name.rpartition("/")[2].partition(" ")[0]


# --- images -----------------------------------------------------------------------------------------


class WantedImage(Value, frozen=True):
    """One container image, and the engines that run in it."""

    image: str  # as the registry names it
    path: Path
    engines: list[str]
    modules: list[str]  # that its Python must have
    architecture: Architecture | None = None  # of the nodes; None: not known


def wanted_images(
    site: Site,
    engines: dict[str, EnvironmentSpec] | None = None,
    devices: Sequence[Hardware] | None = None,
    typed: str | None = None,
) -> list[WantedImage]:
    """Every image once. Engines without one are not for a site of containers."""
    if engines is None:
        engines = specs(Filters(), Configs())
    found: dict[str, WantedImage] = {}
    for device in devices_of(site, Configs()) if devices is None else devices:
        for name, spec in engines.items():
            image = images.choose(typed, site, engine_of(name), spec.image, device)
            if image and not images.is_file(image):
                _add(found, image, name, spec, device, site)
    return list(found.values())


def _add(
    found: dict[str, WantedImage], image: str, engine: str, spec: EnvironmentSpec, device: Hardware, site: Site
) -> None:
    known = found.setdefault(
        image,
        WantedImage(
            image=image,
            path=images.file_of(image, site),
            engines=[],
            modules=[],
            architecture=device.cpu_architecture,
        ),
    )
    if known.architecture != device.cpu_architecture:
        raise RequestError(
            f"image {image} would be used on CPUs of two architectures",
            where=f"the file of site {site.name}: slurm: hardware",
            why=f"{device.name} has {device.cpu_architecture}, the other devices have {known.architecture}",
            next_command="two sites, each with its own partition, hardware and container.images",
        )
    for values, value in ((known.engines, engine), (known.modules, asked_python.module_of(spec))):
        if value not in values:
            values.append(value)


def image_for(site: Site, engine: str, devices: Sequence[Hardware], typed: str | None) -> str:
    """The image of one engine at a site; RequestError where none is known, empty where it has no containers."""
    own: ImageNames = next(
        backend.environment(engine).image for backend in backends().values() if engine in backend.engines
    )
    found = [images.choose(typed, site, engine, own, device) for device in devices]
    if site.runtime == "container" and not any(found):
        raise images.none_known(engine, own, devices[0], site)
    return next((image for image in found if image), "")
