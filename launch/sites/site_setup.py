"""Prepare a site: make its folders, and the container images or environments in which its engines run."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from benchmarks.backend import EnvironmentSpec
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_FAILED, EXIT_VALID, RequestError, StepmarkError
from benchmarks.request import images
from benchmarks.text import aligned, bytes_text, plural
from benchmarks.values import Site
from launch.assets import site_hub
from launch.environments import image_files
from launch.environments.wanted import WantedImage, Work, engine_of, wanted_images
from launch.slurm import helper_job
from launch.slurm.client import Slurm
from launch.slurm.waiting import Limits, run_parts
from launch.terminal import documents
from launch.terminal.output import answer

ANSWER_SECONDS = 10.0  # how long a query that Slurm does not answer is retried
MINUTES_AN_IMAGE = 60  # to download 20 GB from a registry and pack them again
QUIET_SECONDS = 1800.0
QUEUE_SECONDS = 3600.0
SCRIPT = "import_images.sbatch"
TEMPLATE = Path(__file__).with_name("import_images.sbatch.j2")


class State(StrEnum):
    """Why a requirement prevents the site from being ready; FINE if it is met."""

    FINE = ""
    MISSING = "missing"
    REFUSED = "refused"


class Row(NamedTuple):
    """The state of one requirement of the site."""

    name: str
    text: str
    state: State = State.FINE

    @property
    def shown(self) -> str:
        return f"{self.state}: {self.text}" if self.state else self.text


Rows = list[Row]


def set_up(work: Work) -> int:
    """Make the missing parts of a site, print the state of every part, and return the exit code."""
    of_slurm = _slurm(work)
    rows = of_slurm + _rows(work, submits=not any(row.state is State.MISSING for row in of_slurm))
    bad = [row for row in rows if row.state]
    ready = f"ready: python launch/doctor.py nodes --site={work.site.name}"
    last = "something is missing or refused: fix it, and run the same command again" if bad else ready
    shown = [(row.name, row.shown) for row in rows]
    answer(
        documents.Site(site=work.site.name, runtime=work.site.runtime, ready=not bad, found=dict(shown)),
        "\n".join([f"site {work.site.name} ({work.site.runtime})", *aligned(shown), last]),
    )
    return EXIT_FAILED if bad else EXIT_VALID


def _rows(work: Work, submits: bool) -> Rows:
    """Make and list the parts that the site's runtime needs. `submits`: whether a job can be submitted."""
    if work.site.runtime == "venv":
        return _environments(work)
    if work.site.runtime == "python":
        return prepare_folders(work.site, [("results", work.out)])
    return _images_here(work) if work.site.slurm is None else _images_of_nodes(work, submits)


def _slurm(work: Work) -> Rows:
    """Check that Slurm answers, has the partition, and can start containers if the site uses them."""
    if work.site.slurm is None:
        return []
    slurm, name = Slurm(work.site, ANSWER_SECONDS), work.options.partition
    try:
        partition = slurm.partition(name.partition(",")[0] if name else None)
        nodes = slurm.nodes(partition.name)
        without_pyxis = work.site.runtime == "container" and not slurm.has_pyxis()
    except StepmarkError as error:
        why = " ".join(error.why.split())
        return [Row("Slurm", f"{error.what}: {why} ({error.where}); try: {error.next_command}", State.MISSING)]
    up = f"{sum(node.up for node in nodes)} of {plural(len(nodes), 'node is', 'nodes are')} up"
    found = [Row("Slurm", f"partition {partition.name} is {partition.state}, {up}")]
    none = Row("containers", "srun has no --container-image (pyxis), so it cannot start containers", State.REFUSED)
    return found + ([none] if without_pyxis else [])


def preview(work: Work) -> str:
    """Return the script of the job, or why no job is needed."""
    if work.site.slurm is None or work.site.runtime != "container":
        return "no job is needed: Stepmark makes environments and images on this machine"
    job = plan_import(work)
    return render_import(job) if job.to_import else "no job is needed: all images exist"


# --- folders ----------------------------------------------------------------------------------------


def prepare_folders(site: Site, folders: Sequence[tuple[str, Path]]) -> Rows:
    """Make the folders that the nodes can see, and report each folder."""
    return [_prepare_folder(site, name, path.absolute()) for name, path in folders]


def _why_unseen(site: Site, path: Path) -> str:
    shared = [Path(folder).resolve() for folder in site.slurm.shared_folders] if site.slurm else [Path("/")]
    around = [folder for folder in shared if path.resolve().is_relative_to(folder)]
    if not around:
        return f"the nodes do not see this folder (shared with them: {', '.join(map(str, shared)) or 'none'})"
    if any(folder.is_dir() for folder in around):
        return ""
    # Do not make the folder here, because it would exist only on this machine.
    return f"{around[0]} does not exist here: run the command on a machine that shares it with the site"


def _prepare_folder(site: Site, name: str, path: Path) -> Row:
    unseen = _why_unseen(site, path)
    if unseen:
        return Row(name, f"{path}: {unseen}", State.MISSING)
    how = "exists" if path.is_dir() else "made"
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        return Row(name, f"{path}: cannot be written: {error.strerror}", State.MISSING)
    return Row(name, f"{how}: {path}")


# --- environments -----------------------------------------------------------------------------------


def _environments(work: Work) -> Rows:
    from launch.environments import venvs

    rows = prepare_folders(work.site, [("results", work.out), ("environments", venvs.environments_root())])
    if any(row.state for row in rows):
        return rows
    return rows + [_environment(work, spec, name) for name, spec in work.engines.items()]


def _environment(work: Work, spec: EnvironmentSpec, name: str) -> Row:
    from launch.environments import venvs

    if not spec.locks:
        only = len(work.engines) == 1  # the user requested only this engine
        state = State.REFUSED if only else State.FINE
        return Row(name, "not available on this site, because this engine runs only in its container", state)
    return Row(name, f"ready: {venvs.ensure(spec)}")


def _refused(name: str, error: StepmarkError, what: object) -> Row:
    return Row(name, f"{error.what}{f': {error.why}' if error.why else ''} ({what})", State.REFUSED)


# --- images of this machine -------------------------------------------------------------------------


def _chosen_here(work: Work) -> dict[str, tuple[str, EnvironmentSpec]]:
    """Return the image and the environment's requirements of each engine that has an image, by "backend/engine"."""
    cpu = Configs().hardware("cpu")
    found = {
        name: (images.choose(work.image, work.site, engine_of(name), spec.image, cpu), spec)
        for name, spec in work.engines.items()
    }
    return {name: (image, spec) for name, (image, spec) in found.items() if image}


def _images_here(work: Work) -> Rows:
    """Pull the images with docker, podman or apptainer, and check the Python of each."""
    from launch.environments import container

    rows = prepare_folders(work.site, [("results", work.out)])
    if any(row.state for row in rows):
        return rows
    rows += _hub(work)
    for name, (image, spec) in _chosen_here(work).items():
        try:
            about = container.make_ready(work.site, image, spec)
        except RequestError as error:
            rows.append(_refused(name, error, image))
        else:
            rows.append(Row(name, f"ready: {image}, Python {about['python_version']}, {about['container_program']}"))
    return rows


# --- the job that imports images with enroot, because login nodes rarely have enough space ---


class Failure(NamedTuple):
    """The reason why an image could not be imported, and the file with details."""

    why: str
    log: Path


@dataclass(frozen=True)
class ImportJob:
    work: Work
    folder: Path
    wanted: list[WantedImage]
    to_import: list[WantedImage]


def plan_import(work: Work) -> ImportJob:
    """Return the job that imports the missing images."""
    wanted = wanted_images(work.site, work.engines, work.devices, work.image)
    to_import = [image for image in wanted if work.force or not image.path.is_file()]
    return ImportJob(work, helper_job.new_folder(work.out.absolute(), f"setup-{work.site.name}"), wanted, to_import)


def run_import(planned: ImportJob) -> dict[str, Failure]:
    """Submit the import job and wait for its end. Return the failures by image."""
    if not planned.to_import:
        return {}
    logs = [planned.folder / f"{_key(image)}.log" for image in planned.to_import]

    def written(job_id: str) -> int:
        parts = [image.path.with_name(f"{image.path.name}.part-{job_id}") for image in planned.to_import]
        return sum(image_files.size_of(path) for path in (*logs, *parts))

    job_id, ended = run_parts(
        planned.work.site,
        planned.folder / SCRIPT,
        render_import(planned),
        [log.with_suffix(".end") for log in logs],
        written,
        lambda done, size: f"{done} of {len(logs)} images done, {bytes_text(size)}",
        Limits(queue_seconds=QUEUE_SECONDS, quiet_seconds=QUIET_SECONDS),
    )
    state = f"the job ended: {ended.state}" if ended else f"no progress for {QUIET_SECONDS:.0f} s: job cancelled"
    found = {image.image: _failure_of(planned.folder, image, job_id, state) for image in planned.to_import}
    return {image: why for image, why in found.items() if why}


def render_import(planned: ImportJob) -> str:
    minutes = planned.work.minutes or MINUTES_AN_IMAGE * len(planned.to_import)
    lines = helper_job.directives(planned.work.options, helper_job.SETUP_NAME, 1, minutes, planned.folder)
    return helper_job.render(
        TEMPLATE,
        planned.folder,
        site=planned.work.site.name,
        directives=[*lines, "--dependency=singleton"],
        images=[
            {
                "comment": f"{image.image}: {', '.join(image.engines)}",
                "key": _key(image),
                "uri": helper_job.shell_word(images.import_uri(image.image)),
                "file": helper_job.shell_word(str(image.path)),
            }
            for image in planned.to_import
        ],
    )


def _key(image: WantedImage) -> str:
    """Return the name of an image's log without its ending. It has no characters that a shell interprets."""
    return image.path.stem


def _failure_of(folder: Path, image: WantedImage, job_id: str, state: str) -> Failure | None:
    """Return why an image is missing; None if it exists."""
    code = _last_line(folder / f"{_key(image)}.end")
    if code == "0" and image.path.is_file():
        return None
    log, output = folder / f"{_key(image)}.log", folder / f"slurm-{job_id}.out"
    words = _last_line(log) or _last_line(output)
    how = f"exit code {code}" if code else state
    return Failure(f"{how}{f': {words}' if words else ''}", log if log.exists() else output)


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:200] if lines else ""


# --- images of a cluster's nodes --------------------------------------------------------------------


def _images_of_nodes(work: Work, submits: bool) -> Rows:
    container = work.site.container
    if container is None or container.images is None:
        raise RequestError(f"site '{work.site.name}' has no folder for images", where="container.images")
    rows = prepare_folders(work.site, [("images", Path(container.images)), ("results", work.out)])
    job, failures = plan_import(work), {}
    if not any(row.state for row in rows):
        rows += _hub(work)
        failures = run_import(job) if submits else {}
    rows += [_image_row(image, job.to_import, failures) for image in job.wanted]
    return rows


def _hub(work: Work) -> Rows:
    """Download the repositories from Hugging Face. After a failure, continue with the other repositories."""
    rows: Rows = []
    for repository in work.repositories:
        try:
            rows += [Row(*found) for found in site_hub.fetch(work.site, [repository])]
        except StepmarkError as error:
            row = _refused(repository.name, error, error.where)
            rows.append(row._replace(text=f"{row.text}; try: {error.next_command}"))
    return rows


def _image_row(image: WantedImage, imported: list[WantedImage], failures: dict[str, Failure]) -> Row:
    engines = f"  for {', '.join(image.engines)}"
    if image.image in failures:
        kept = "; the existing image is kept" if image.path.is_file() else ""
        failure = failures[image.image]
        text = f"not imported: {failure.why} ({failure.log}){kept}{engines}"
        return Row(image.image, text, State.MISSING)
    if not image.path.is_file():
        return Row(image.image, f"{image.path}{engines}", State.MISSING)
    broken = image_files.broken(image.path)
    if broken:
        text = f"{broken}: {image.path}; --force imports it again, --image=NAME imports another{engines}"
        return Row(image.image, text, State.REFUSED)
    how = "imported" if image in imported else "exists"
    size = f"{image_files.size_of(image.path):,} bytes"
    return Row(image.image, f"{how}: {image.path}, {size}{engines}")
