"""Gets a site ready: its folders, and the container images or virtual environments its engines run in.

Images are imported by enroot in one job of the cluster, because login nodes seldom have the room for it.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.assets.assets import Repository
from benchmarks.backend import EnvironmentSpec, backends, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_FAILED, EXIT_VALID, RequestError, nearest
from benchmarks.machine import images
from benchmarks.rendering.columns import aligned
from benchmarks.rendering.report import bytes_text
from benchmarks.runs.runfolder import write_atomically
from benchmarks.values import Architecture, Hardware, ImageNames, JobOptions, Site, Value
from launch.preflight import job
from launch.preflight.waiting import Limits, say, wait
from launch.running import asked_python, interpreters
from launch.running.asked_python import AskedPython
from launch.sites import image_files, site_hub
from launch.slurm.client import Slurm

MINUTES_AN_IMAGE = 60  # 20 GB from a registry, then packed anew
QUIET_SECONDS = 1800.0
QUEUE_SECONDS = 3600.0
SCRIPT = "import_images.sbatch"

Rows = list[tuple[str, str]]


class WantedImage(Value, frozen=True):
    """One container image, and the engines that run in it."""

    image: str  # as the registry names it
    path: Path
    engines: list[str]
    modules: list[str]  # that its Python must have
    architecture: Architecture | None = None  # of the nodes; None: not known


@dataclass(frozen=True)
class Filters:
    """Which engines a site is set up for; None: all of them."""

    backend: str | None = None
    engine: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class Work:
    """What is to be set up, where."""

    site: Site
    options: JobOptions
    minutes: int | None  # of the job, where the person says so
    engines: dict[str, EnvironmentSpec]
    out: Path  # the folder of the site's results
    force: bool  # import images anew that are there
    devices: Sequence[Hardware]  # of the site's nodes
    image: str | None = None  # instead of those that the site or Stepmark names
    repositories: Sequence[Repository] = ()  # that programs read from Hugging Face


def set_up(work: Work) -> int:
    """Folders, then images, environments or interpreters; says what is there and what is missing."""
    site = work.site
    if site.runtime == "venv":
        return _say(site, _environments(work))
    if site.runtime == "python":
        return _say(site, _interpreters(work))
    if site.slurm is None:
        return _say(site, _images_here(work))
    rows = prepare_folders(site, [("images", _images_folder(site)), ("results", work.out)])
    wanted = wanted_images(site, work.engines, work.devices, work.image)
    to_import, to_check = _to_do(work, wanted)
    fetched = [] if _bad(rows) else site_hub.fetch(site, work.repositories)
    failures = {} if _bad(rows) else run_job(work, to_import, to_check)
    found = [_image_row(image, to_import, failures) for image in wanted]
    return _say(site, rows + fetched + found + _for_another_architecture(work))


def preview(work: Work) -> str:
    """The job as it would be submitted, or the environments that would be made."""
    if work.site.runtime == "venv":
        names = {spec.name for spec in work.engines.values() if spec.locks}
        return "\n".join(f"would be made, where it is not there: environment '{name}'" for name in sorted(names))
    if work.site.runtime == "python":
        return "\n".join(f"would be looked at: {python}" for python in sorted(_pythons(work)))
    if work.site.slurm is None:
        names = {image for image, _ in _chosen_here(work).values()}
        return "\n".join(f"would be pulled, where it is not there: {image}" for image in sorted(names))
    to_import, to_check = _to_do(work, wanted_images(work.site, work.engines, work.devices, work.image))
    fetched = site_hub.preview(work.site, work.repositories)
    none = not to_import and not to_check
    return "\n".join(
        [*fetched, "all images are there: no job" if none else render(work, to_import, to_check, _job_folder(work))]
    )


def _to_do(work: Work, wanted: Sequence[WantedImage]) -> tuple[list[WantedImage], list[WantedImage]]:
    """What is imported, and what is there and is not known yet."""
    to_import = [image for image in wanted if work.force or not image.path.is_file()]
    there = [image for image in wanted if image not in to_import and not image_files.broken(image.path)]
    return to_import, [image for image in there if not image_files.is_known(image.path)]


# --- what is wanted ---------------------------------------------------------------------------------


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
            image = images.choose(typed, site, name.rpartition("/")[2], spec.image, device)
            if image and not images.is_file(image):
                _add(found, image, name, spec, device, site)
    return list(found.values())


def _add(
    found: dict[str, WantedImage], image: str, engine: str, spec: EnvironmentSpec, device: Hardware, site: Site
) -> None:
    known = found.get(image)
    if known is None:
        found[image] = WantedImage(
            image=image,
            path=images.file_of(image, site),
            engines=[engine],
            modules=[asked_python.module_of(spec)],
            architecture=device.cpu_architecture,
        )
        return
    if known.architecture != device.cpu_architecture:
        raise RequestError(
            f"image {image} would be used on CPUs of two architectures",
            where=f"the file of site {site.name}: slurm: hardware",
            why=f"{device.name} has {device.cpu_architecture}, the other devices have {known.architecture}",
            next_command="two sites, each with its own partition, hardware and container.images",
        )
    if engine not in known.engines:
        known.engines.append(engine)
    if asked_python.module_of(spec) not in known.modules:
        known.modules.append(asked_python.module_of(spec))


def _for_another_architecture(work: Work) -> Rows:
    """The engines whose image the site names for other CPUs than those of its nodes."""
    found: dict[str, str] = {}
    for device in work.devices:
        for name, spec in work.engines.items():
            engine = name.rpartition("/")[2]
            if engine in work.site.images and not images.choose(work.image, work.site, engine, spec.image, device):
                found[name] = f"{BAD}{images.none_known(engine, spec.image, device, work.site).what}"
    return list(found.items())


def image_for(site: Site, engine: str, devices: Sequence[Hardware], typed: str | None) -> str:
    """The image of one engine at a site; RequestError where none is known, empty where it has no containers."""
    own: ImageNames = next(
        backend.environment(engine).image for backend in backends().values() if engine in backend.engines
    )
    found = [images.choose(typed, site, engine, own, device) for device in devices]
    if site.runtime == "container" and not any(found):
        raise images.none_known(engine, own, devices[0], site)
    return next((image for image in found if image), "")


def _images_folder(site: Site) -> Path:
    if site.container is None or site.container.images is None:
        raise RequestError(f"site '{site.name}' does not say where its images are", where="container.images")
    return Path(site.container.images)


# --- folders ----------------------------------------------------------------------------------------


BAD, REFUSED = "missing: ", "refused: "  # how the text of a row begins that keeps the site from being ready


def prepare_folders(site: Site, folders: Sequence[tuple[str, Path]]) -> Rows:
    """Makes all of them, or none where one cannot be."""
    wanted = [(name, path.absolute()) for name, path in folders]
    problems = [_problem(site, path) for _, path in wanted]
    if any(problems):
        return [
            (name, f"{BAD}{path}: {problem}" if problem else f"{'there' if path.is_dir() else 'not made'}: {path}")
            for (name, path), problem in zip(wanted, problems, strict=True)
        ]
    return [(name, _prepare_folder(path)) for name, path in wanted]


def _problem(site: Site, path: Path) -> str:
    """Why a folder cannot be one of the site's; nothing where it can."""
    shared = [Path(folder).resolve() for folder in site.slurm.shared_folders] if site.slurm else [Path("/")]
    around = [folder for folder in shared if path.resolve().is_relative_to(folder)]
    if not around:
        return f"the nodes do not see it (they share {', '.join(map(str, shared)) or 'nothing'})"
    if not any(folder.is_dir() for folder in around):
        # Made here, it would be a folder of this machine's own under the same name.
        return f"{around[0]} is not there: on a machine of the site, which shares it, the same command works"
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not existing.is_dir():
        return f"{existing} is no folder"
    return "" if os.access(existing, os.W_OK | os.X_OK) else f"{existing} cannot be written"


def _prepare_folder(path: Path) -> str:
    how = "there" if path.is_dir() else "made"
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".stepmark-{time.time_ns()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        return f"{BAD}{path}: cannot be written: {error.strerror}"
    return f"{how}: {path}"


def _bad(rows: Rows) -> bool:
    return any(text.startswith((BAD, REFUSED)) for _, text in rows)


# --- environments -----------------------------------------------------------------------------------


def _environments(work: Work) -> Rows:
    from launch.environments import venvs

    folders = [("results", work.out), ("environments", venvs.environments_root())]
    rows = prepare_folders(work.site, folders)
    if _bad(rows):
        return rows
    for name, spec in work.engines.items():
        if not spec.locks:
            rows.append((name, "not on this site: it runs only in its container"))
            continue
        rows.append((name, f"there: {venvs.ensure(spec)}"))
    return rows


# --- interpreters -----------------------------------------------------------------------------------


def _pythons(work: Work) -> dict[Path, list[str]]:
    """The site's Pythons, each with the engines that it is for."""
    found: dict[Path, list[str]] = {}
    for name, spec in work.engines.items():
        engine = name.rpartition("/")[2]
        if spec.locks and (isinstance(work.site.python, str) or engine in (work.site.python or {})):
            found.setdefault(interpreters.named(work.site, engine), []).append(name)
    return found


def _interpreters(work: Work) -> Rows:
    rows = prepare_folders(work.site, [("results", work.out)])
    for python, names in _pythons(work).items():
        rows += [(name, _interpreter_text(work, python, name)) for name in names]
    return rows


def _interpreter_text(work: Work, python: Path, name: str) -> str:
    try:
        interpreters.refuse(work.site, work.engines[name], name.rpartition("/")[2])
    except RequestError as error:
        return f"{REFUSED}{error.what}{f': {error.why}' if error.why else ''} ({python})"
    asked = interpreters.ask(python, asked_python.module_of(work.engines[name]))
    if isinstance(asked, AskedPython):
        return f"there: {python}, Python {asked.python}, {len(asked.packages)} packages"
    return f"there: {python}, not asked: {asked}"


# --- images of this machine -------------------------------------------------------------------------


def _chosen_here(work: Work) -> dict[str, tuple[str, EnvironmentSpec]]:
    """ "backend/engine" -> its image, and what it must have."""
    cpu = Configs().hardware("cpu")
    found = {
        name: (images.choose(work.image, work.site, name.rpartition("/")[2], spec.image, cpu), spec)
        for name, spec in work.engines.items()
    }
    return {name: (image, spec) for name, (image, spec) in found.items() if image}


def _images_here(work: Work) -> Rows:
    """Pulled by docker, podman or apptainer, and each asked for its Python."""
    from launch.containers import running

    rows = prepare_folders(work.site, [("results", work.out)])
    rows += [] if _bad(rows) else site_hub.fetch(work.site, work.repositories)
    for name, (image, spec) in {} if _bad(rows) else _chosen_here(work).items():
        try:
            about = running.set_up(work.site, image, spec)
        except RequestError as error:
            rows.append((name, f"{REFUSED}{error.what}{f': {error.why}' if error.why else ''} ({image})"))
            continue
        rows.append((name, f"there: {image}, Python {about['python_version']}, {about['container_program']}"))
    return rows


# --- images -----------------------------------------------------------------------------------------


def run_job(work: Work, to_import: list[WantedImage], to_check: list[WantedImage]) -> dict[str, str]:
    """One job for all of them; image -> why it could not be imported."""
    every = [*to_import, *to_check]
    if not every:
        return {}
    folder = _job_folder(work)
    script, text = folder / SCRIPT, render(work, to_import, to_check, folder)
    folder.mkdir(parents=True)
    write_atomically(script, text.encode())
    slurm = Slurm(work.site, on_wait=say)
    job_id = slurm.submit(script, job.job_environment())
    limits = Limits(queue_seconds=QUEUE_SECONDS, quiet_seconds=QUIET_SECONDS)
    ends = [folder / f"{_key(image)}.end" for image in every]
    ended = wait(slurm, job_id, _progress(folder, every, job_id), lambda: all(end.exists() for end in ends), limits)
    state = f"the job ended: {ended.state}" if ended else f"nothing came for {QUIET_SECONDS:.0f} s: job cancelled"
    found = {image.image: _why(folder, image, job_id, state) for image in to_import}
    failures = {image: why for image, why in found.items() if why}
    for image in every:
        if image.image not in failures:
            _keep_what_it_said(folder, image)
    return failures


def _keep_what_it_said(folder: Path, image: WantedImage) -> None:
    """Nothing is kept where no container could be started on the node: that says nothing of the image."""
    try:
        code = int((folder / f"{_key(image)}.checked").read_text())
        image_files.keep(image.path, (folder / f"{_key(image)}.check").read_text(errors="replace"), code)
    except (OSError, ValueError):
        return


def _progress(folder: Path, missing: list[WantedImage], job_id: str) -> Callable[[], tuple[int, str]]:
    def progress() -> tuple[int, str]:
        done = sum((folder / f"{_key(image)}.end").exists() for image in missing)
        parts = [folder / f"{_key(image)}.log" for image in missing]
        parts += [image.path.with_name(f"{image.path.name}.part-{job_id}") for image in missing]
        written = sum(image_files.size_of(path) for path in parts)
        now = f", {missing[done].image}: {bytes_text(written)}" if done < len(missing) else ""
        # What is written counts as well: one image may take longer than a silent job is waited for.
        return done * 10**15 + written, f"{done} of {len(missing)} images are done{now}"

    return progress


def _why(folder: Path, image: WantedImage, job_id: str, state: str) -> str:
    """Why an image is not there; nothing where it is."""
    try:
        code = (folder / f"{_key(image)}.end").read_text().strip()
    except OSError:
        code = ""
    if code == "0" and image.path.is_file():
        return ""
    log, output = folder / f"{_key(image)}.log", folder / f"slurm-{job_id}.out"
    words = _last_line(log) or _last_line(output)
    return (
        f"{f'exit code {code}' if code else state}{f': {words}' if words else ''} ({log if log.exists() else output})"
    )


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:200] if lines else ""


def _image_row(image: WantedImage, imported: list[WantedImage], failures: dict[str, str]) -> tuple[str, str]:
    engines = f"  for {', '.join(image.engines)}"
    if image.image in failures:
        kept = "; the one that was there is kept" if image.path.is_file() else ""
        return image.image, f"{BAD}not imported: {failures[image.image]}{kept}{engines}"
    if not image.path.is_file():
        return image.image, f"{BAD}{image.path}{engines}"
    unfit = image_files.unfit(image.path, image.architecture, image.modules)
    if unfit:
        return image.image, f"{REFUSED}{unfit}: {image.path}; --force imports it anew, --image=NAME another{engines}"
    how = "imported" if image in imported else "there already"
    return (
        image.image,
        f"{how}: {image.path}, {image_files.size_of(image.path):,} bytes, {_checked_text(image)}{engines}",
    )


def _checked_text(image: WantedImage) -> str:
    checked = image_files.checked_of(image.path)
    if checked is None or checked.asked is None:
        return "not checked: the node cannot start containers (no pyxis)"
    found = [f"{name} {checked.asked.packages.get(name, 'is there')}" for name in image.modules]
    return f"Python {checked.asked.python}, {', '.join(found)}"


def _say(site: Site, rows: Rows) -> int:
    bad = _bad(rows)
    last = "something is missing or refused" if bad else f"ready: python launch/doctor.py --site={site.name}"
    print("\n".join([f"site {site.name} ({site.runtime})", *aligned(rows), last]))
    return EXIT_FAILED if bad else EXIT_VALID


# --- the job ----------------------------------------------------------------------------------------


def _job_folder(work: Work) -> Path:
    return job.new_folder(work.out.absolute(), f"setup-{work.site.name}")


def render(work: Work, to_import: list[WantedImage], to_check: list[WantedImage], folder: Path) -> str:
    every = [*to_import, *to_check]
    minutes = work.minutes or MINUTES_AN_IMAGE * len(every)
    lines = job.directives(work.options, job.IMPORT_NAME, 1, minutes, folder / "slurm-%j.out")
    return job.render(
        "import_images.sbatch.j2",
        site=work.site.name,
        directives=[*lines, "--dependency=singleton"],
        folder=job.shell_word(str(folder)),
        repository=job.shell_word(str(job.REPOSITORY)),
        program=asked_python.PROGRAM.relative_to(job.REPOSITORY),
        images=[
            {
                "comment": f"{image.image}: {', '.join(image.engines)}",
                "key": _key(image),
                "uri": job.shell_word(images.import_uri(image.image)) if image in to_import else None,
                "file": job.shell_word(str(image.path)),
                "modules": image.modules,
            }
            for image in every
        ],
    )


def _key(image: WantedImage) -> str:
    """The name of its log: an image's file name holds nothing that a shell would read."""
    return image.path.stem
