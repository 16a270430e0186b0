"""Gets a site ready: its folders, and the container images or virtual environments its engines run in.

Images are imported by enroot in one job of the cluster, because login nodes seldom have the room for it.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.backend import EnvironmentSpec, backends, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_FAILED, EXIT_VALID, RequestError, nearest
from benchmarks.report import aligned, bytes_text
from benchmarks.runfolder import write_atomically
from benchmarks.values import JobOptions, Site, Value
from launch.preflight import job
from launch.preflight.waiting import Limits, say, wait
from launch.slurm import images
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


def set_up(work: Work) -> int:
    """Folders, then images or environments; says what is there and what is missing."""
    site = work.site
    if site.runtime == "venv":
        return _say(site, _environments(work))
    rows = prepare_folders(site, [("images", _images_folder(site)), ("results", work.out)])
    missing = _missing(work)
    failures = import_images(work, missing) if missing and not _bad(rows) else {}
    return _say(site, rows + [_image_row(i, missing, failures) for i in wanted_images(site, work.engines)])


def preview(work: Work) -> str:
    """The job as it would be submitted, or the environments that would be made."""
    if work.site.runtime == "venv":
        names = {spec.name for spec in work.engines.values() if spec.locks}
        return "\n".join(f"would be made, where it is not there: environment '{name}'" for name in sorted(names))
    missing = _missing(work)
    return render(work, missing, _job_folder(work)) if missing else "all images are there: no job"


def _missing(work: Work) -> list[WantedImage]:
    wanted = wanted_images(work.site, work.engines)
    return [image for image in wanted if work.force or not image.path.is_file()]


# --- what is wanted ---------------------------------------------------------------------------------


def specs(filters: Filters, configs: Configs) -> dict[str, EnvironmentSpec]:
    """ "backend/engine" -> what it runs in, of the engines that the filters leave."""
    chosen = [find_backend(filters.backend)] if filters.backend else list(backends().values())
    all_engines = sorted({engine for backend in chosen for engine in backend.engines})
    if filters.engine is not None and filters.engine not in all_engines:
        hint = nearest(filters.engine, all_engines)
        raise RequestError(f"unknown engine '{filters.engine}': {hint}", where="--engine")
    found = {
        f"{backend.name}/{engine}": backend.environment(engine)
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


def wanted_images(site: Site, engines: dict[str, EnvironmentSpec] | None = None) -> list[WantedImage]:
    """Every image once. Engines without one are not for a site of containers."""
    if engines is None:
        engines = specs(Filters(), Configs())
    of_image: dict[str, list[str]] = {}
    for name, spec in engines.items():
        if spec.image:
            of_image.setdefault(spec.image, []).append(name)
    folder = _images_folder(site)
    return [
        WantedImage(image=image, path=folder / images.file_name(image), engines=names)
        for image, names in of_image.items()
    ]


def _images_folder(site: Site) -> Path:
    if site.container is None:
        raise RequestError(f"site '{site.name}' does not say where its images are", where="container.images")
    return Path(site.container.images)


# --- folders ----------------------------------------------------------------------------------------


BAD = "missing: "  # how the text of a row begins that keeps the site from being ready


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
    return any(text.startswith(BAD) for _, text in rows)


# --- environments -----------------------------------------------------------------------------------


def _environments(work: Work) -> Rows:
    from launch import environments

    folders = [("results", work.out), ("environments", environments.environments_root())]
    rows = prepare_folders(work.site, folders)
    if _bad(rows):
        return rows
    for name, spec in work.engines.items():
        if not spec.locks:
            rows.append((name, "not on this site: it runs in its container alone"))
            continue
        rows.append((name, f"there: {environments.ensure(spec)}"))
    return rows


# --- images -----------------------------------------------------------------------------------------


def import_images(work: Work, missing: list[WantedImage]) -> dict[str, str]:
    """One job for all of them; image -> why it could not be imported."""
    folder = _job_folder(work)
    script, text = folder / SCRIPT, render(work, missing, folder)
    folder.mkdir(parents=True)
    write_atomically(script, text.encode())
    slurm = Slurm(work.site, on_wait=say)
    job_id = slurm.submit(script, job.job_environment())
    limits = Limits(queue_seconds=QUEUE_SECONDS, quiet_seconds=QUIET_SECONDS)
    ends = [folder / f"{_key(image)}.end" for image in missing]
    ended = wait(slurm, job_id, _progress(folder, missing, job_id), lambda: all(end.exists() for end in ends), limits)
    state = f"the job ended: {ended.state}" if ended else f"nothing came for {QUIET_SECONDS:.0f} s: job cancelled"
    found = {image.image: _why(folder, image, job_id, state) for image in missing}
    return {image: why for image, why in found.items() if why}


def _progress(folder: Path, missing: list[WantedImage], job_id: str) -> Callable[[], tuple[int, str]]:
    def progress() -> tuple[int, str]:
        done = sum((folder / f"{_key(image)}.end").exists() for image in missing)
        parts = [folder / f"{_key(image)}.log" for image in missing]
        parts += [image.path.with_name(f"{image.path.name}.part-{job_id}") for image in missing]
        written = sum(_size(path) for path in parts)
        now = f", {missing[done].image}: {bytes_text(written)}" if done < len(missing) else ""
        # What is written counts as well: one image may take longer than a silent job is waited for.
        return done * 10**15 + written, f"{done} of {len(missing)} images are imported{now}"

    return progress


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


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


def _image_row(image: WantedImage, missing: list[WantedImage], failures: dict[str, str]) -> tuple[str, str]:
    engines = f"  for {', '.join(image.engines)}"
    if image.image in failures:
        kept = "; the one that was there is kept" if image.path.is_file() else ""
        return image.image, f"{BAD}not imported: {failures[image.image]}{kept}{engines}"
    if not image.path.is_file():
        return image.image, f"{BAD}{image.path}{engines}"
    how = "imported" if image in missing else "there already"
    return image.image, f"{how}: {image.path}, {_size(image.path):,} bytes{engines}"


def _say(site: Site, rows: Rows) -> int:
    bad = _bad(rows)
    last = "something is missing" if bad else f"ready: python launch/doctor.py --site={site.name}"
    print("\n".join([f"site {site.name} ({site.runtime})", *aligned(rows), last]))
    return EXIT_FAILED if bad else EXIT_VALID


# --- the job ----------------------------------------------------------------------------------------


def _job_folder(work: Work) -> Path:
    return work.out.absolute() / f"setup-{work.site.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"


def render(work: Work, missing: list[WantedImage], folder: Path) -> str:
    minutes = work.minutes or MINUTES_AN_IMAGE * len(missing)
    lines = job.directives(work.options, job.IMPORT_NAME, 1, minutes, folder / "slurm-%j.out")
    return job.render(
        "import_images.sbatch.j2",
        site=work.site.name,
        directives=[*lines, "--dependency=singleton"],
        folder=job.shell_word(str(folder)),
        images=[
            {
                "comment": f"{image.image}: {', '.join(image.engines)}",
                "key": _key(image),
                "uri": job.shell_word(images.import_uri(image.image)),
                "file": job.shell_word(str(image.path)),
            }
            for image in missing
        ],
    )


def _key(image: WantedImage) -> str:
    """The name of its log: an image's file name holds nothing that a shell would read."""
    return image.path.stem
