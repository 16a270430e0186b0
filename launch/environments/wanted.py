"""The inputs of a site's set-up: the requested engines, their environments, and the images for the nodes."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from msgspec.structs import replace

from benchmarks.assets import Repository
from benchmarks.backend import EnvironmentSpec, backends, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, capture, nearest
from benchmarks.request import images
from benchmarks.request.resolve import ANY, Request, resolve
from benchmarks.values import Hardware, ImageNames, JobOptions, Site, Value


@dataclass(frozen=True)
class Work:
    """The request to set up a site."""

    site: Site
    options: JobOptions
    minutes: int | None  # the time limit of the job, if the user passes one
    engines: dict[str, EnvironmentSpec]
    out: Path  # the folder of the site's results
    force: bool  # import existing images again
    devices: Sequence[Hardware]  # the hardware of the site's nodes
    image: str | None = None  # replaces the image that the site or Stepmark names
    repositories: Sequence[Repository] = ()  # the repositories that programs read from Hugging Face


def platforms(site: Site, configs: Configs) -> list[str]:
    """Return the platforms whose environments a site needs; only the CPU if the site names no devices."""
    hardware = site.slurm.hardware if site.slurm else []
    if site.runtime != "venv":
        return ["cpu"]  # an image or interpreter is the same for all devices
    return sorted({configs.hardware(name).platform for name in hardware}) or ["cpu"]


def specs(
    configs: Configs,
    platforms: Sequence[str] = ("cpu",),
    backend: str | None = None,
    engine: str | None = None,
    model: str | None = None,
    on: Collection[str] = (),
) -> dict[str, EnvironmentSpec]:
    """Return "backend/engine" -> environment, for every engine or only for `engine`.

    With a model but no engine, use each backend's default engine. If `on` names devices, use only recipes for these
    devices, unless the model has no such recipe.
    """
    chosen = [find_backend(backend)] if backend else list(backends().values())
    all_engines = sorted({name for one in chosen for name in one.engines})
    if engine is not None and engine not in all_engines:
        raise RequestError(f"unknown engine '{engine}': {nearest(engine, all_engines)}", where="--engine")
    found = {}
    for platform, one in product(platforms, chosen):
        named = [name for name in one.engines if engine in (None, name)]
        mine = [name for name in named if _trains(model, one.name, name, configs, on)]
        for name in mine if model is None else mine[:1]:
            spec = one.environment(name, platform)
            if engine or model or not spec.only_by_name:
                suffix = f" ({platform})" if len(platforms) > 1 else ""
                found[f"{one.name}/{name}{suffix}"] = spec
    if not found and on:
        return specs(configs, platforms, backend, engine, model)
    if not found:
        raise RequestError(f"no engine has a recipe for {model}", where="--model, --backend and --engine")
    return found


def used_without_engine(
    engines: dict[str, EnvironmentSpec], site: Site, devices: Sequence[Hardware], configs: Configs
) -> dict[str, EnvironmentSpec]:
    """Return the engines that run.py without --engine starts on the site, for any model and task."""
    used = set()
    names = {name.partition("/")[0] for name in engines}
    tasks = ("pretrain", "lora")
    for name, device, model, task in product(names, devices, configs.names("models"), tasks):
        with suppress(RequestError):
            wanted = Request(backend=name, model=model, task=task, hardware=device.name, site=site.name)
            used.add(resolve(wanted, configs, find_backend(name)).engine)
    found = {name: spec for name, spec in engines.items() if engine_of(name) in used}
    if not found:
        what, engine = f"no model runs on site '{site.name}' without --engine", engine_of(next(iter(engines)))
        raise RequestError(what, where="--site", next_command=f"--engine={engine}")
    return found


def refuse_untrainable(
    engines: dict[str, EnvironmentSpec], site: Site, model: str, devices: Sequence[Hardware], configs: Configs
) -> None:
    """Raise RequestError if run.py would refuse the model with an engine on every device and in every task."""
    for name, spec in engines.items():
        backend = find_backend(name.partition("/")[0])
        wanted = Request(backend=backend.name, engine=engine_of(name), model=model, site=site.name)
        asked = [replace(wanted, hardware=one.name, task=task) for one in devices for task in ("pretrain", "lora")]
        errors = [error for one in asked for error in capture(partial(resolve, one, configs, backend))]
        if spec.locks and len(errors) == len(asked):
            raise errors[0]


def _trains(model: str | None, backend: str, engine: str, configs: Configs, on: Collection[str]) -> bool:
    if model is None:
        return True
    name = configs.model(model).name
    mine = [recipe for recipe in configs.recipes() if (recipe.backend, recipe.engine) == (backend, engine)]
    there = [recipe for recipe in mine if not on or {ANY, *on} & set(recipe.hardware)]
    return any(name in recipe.models or ANY in recipe.models for recipe in there)


def devices_of(site: Site, configs: Configs) -> list[Hardware]:
    """Return the devices of the site's nodes."""
    return [configs.hardware(name) for name in site.slurm.hardware] if site.slurm else []


def engine_of(name: str) -> str:
    """Return the engine in "backend/engine (platform)"."""
    return name.rpartition("/")[2].partition(" ")[0]


# --- images -----------------------------------------------------------------------------------------


class WantedImage(Value, frozen=True):
    """One container image, and the engines that run in it."""

    image: str  # its name in the registry
    path: Path
    engines: list[str]


def wanted_images(
    site: Site,
    engines: dict[str, EnvironmentSpec] | None = None,
    devices: Sequence[Hardware] | None = None,
    typed: str | None = None,
) -> list[WantedImage]:
    """Return every image once, with its engines. Engines without an image are skipped."""
    if engines is None:
        engines = specs(Configs())
    found: dict[str, WantedImage] = {}
    for device in devices_of(site, Configs()) if devices is None else devices:
        for name, spec in engines.items():
            image = images.choose(typed, site, engine_of(name), spec.image, device)
            if not image or images.is_file(image):
                continue
            known = found.setdefault(image, WantedImage(image=image, path=images.file_of(image, site), engines=[]))
            if name not in known.engines:
                known.engines.append(name)
    return list(found.values())


def image_for(site: Site, engine: str, devices: Sequence[Hardware], typed: str | None) -> str:
    """Return the image of an engine at a site; "" without containers. Raise RequestError if the image is unknown."""
    own: ImageNames = next(
        backend.environment(engine).image for backend in backends().values() if engine in backend.engines
    )
    found = [images.choose(typed, site, engine, own, device) for device in devices]
    if site.runtime == "container" and not any(found):
        raise images.unknown_image(engine, own, devices[0], site)
    return next((image for image in found if image), "")
