"""The job that imports a site's container images by enroot, and starts each once to see what is in it.

A job, because login nodes seldom have the room for it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.request import images
from benchmarks.runs.runfolder import write_atomically
from benchmarks.text import bytes_text
from launch.environments import image_files
from launch.environments.python_report import PROGRAM
from launch.environments.wanted import WantedImage, Work, wanted_images
from launch.slurm import helper_job
from launch.slurm.client import Slurm
from launch.slurm.waiting import Came, Limits, Progress, wait

MINUTES_AN_IMAGE = 60  # 20 GB from a registry, then packed anew
QUIET_SECONDS = 1800.0
QUEUE_SECONDS = 3600.0
SCRIPT = "import_images.sbatch"
TEMPLATE = Path(__file__).with_name("import_images.sbatch.j2")


class Failure(NamedTuple):
    """Why an image could not be imported, and the file that says more."""

    why: str
    log: Path


@dataclass(frozen=True)
class ImportJob:
    work: Work
    folder: Path
    wanted: list[WantedImage]
    to_import: list[WantedImage]
    to_check: list[WantedImage]  # there already, and not known yet

    @property
    def images(self) -> list[WantedImage]:
        return [*self.to_import, *self.to_check]


def plan(work: Work) -> ImportJob:
    """What of the wanted images is imported, and what is only looked into."""
    wanted = wanted_images(work.site, work.engines, work.devices, work.image)
    asked_for = [image for image in wanted if work.named or image.path.is_file()]
    to_import = [image for image in asked_for if work.force or not image.path.is_file()]
    there = [image for image in asked_for if image not in to_import and not image_files.broken(image.path)]
    to_check = [image for image in there if not image_files.is_known(image.path)]
    return ImportJob(
        work, helper_job.new_folder(work.out.absolute(), f"setup-{work.site.name}"), wanted, to_import, to_check
    )


def run(planned: ImportJob) -> dict[str, Failure]:
    """Submit it and wait for its end; image -> why it could not be imported."""
    if not planned.images:
        return {}
    script, text = planned.folder / SCRIPT, render(planned)
    planned.folder.mkdir(parents=True)
    write_atomically(script, text.encode())
    slurm = Slurm(planned.work.site)
    job_id = slurm.submit(script, helper_job.job_environment())
    limits = Limits(queue_seconds=QUEUE_SECONDS, quiet_seconds=QUIET_SECONDS)
    ends = [planned.folder / f"{_key(image)}.end" for image in planned.images]
    ended = wait(slurm, job_id, _progress(planned, job_id), lambda: all(end.exists() for end in ends), limits)
    state = f"the job ended: {ended.state}" if ended else f"nothing came for {QUIET_SECONDS:.0f} s: job cancelled"
    found = {image.image: _why(planned.folder, image, job_id, state) for image in planned.to_import}
    failures = {image: why for image, why in found.items() if why}
    for image in planned.images:
        if image.image not in failures:
            _keep_answer(planned.folder, image)
    return failures


def render(planned: ImportJob) -> str:
    minutes = planned.work.minutes or MINUTES_AN_IMAGE * len(planned.images)
    lines = helper_job.directives(planned.work.options, helper_job.SETUP_NAME, 1, minutes, planned.folder)
    return helper_job.render(
        TEMPLATE,
        planned.folder,
        site=planned.work.site.name,
        directives=[*lines, "--dependency=singleton"],
        program=PROGRAM.relative_to(helper_job.REPOSITORY),
        images=[
            {
                "comment": f"{image.image}: {', '.join(image.engines)}",
                "key": _key(image),
                "uri": helper_job.shell_word(images.import_uri(image.image)) if image in planned.to_import else None,
                "file": helper_job.shell_word(str(image.path)),
                "modules": image.modules,
            }
            for image in planned.images
        ],
    )


def _key(image: WantedImage) -> str:
    """The name of its log: an image's file name holds nothing that a shell would read."""
    return image.path.stem


def _progress(planned: ImportJob, job_id: str) -> Progress:
    def progress() -> Came:
        done = sum((planned.folder / f"{_key(image)}.end").exists() for image in planned.images)
        parts = [planned.folder / f"{_key(image)}.log" for image in planned.images]
        parts += [image.path.with_name(f"{image.path.name}.part-{job_id}") for image in planned.images]
        written = sum(image_files.size_of(path) for path in parts)
        # Bytes count as progress too: one image may take longer than a silent job is waited for.
        images = len(planned.images)
        text = f"{done} of {images} images are done, {bytes_text(written)}"
        return Came(done * 10**15 + written, text, done, images)

    return progress


def _keep_answer(folder: Path, image: WantedImage) -> None:
    """Nothing is kept where no container could be started on the node: that says nothing of the image."""
    try:
        code = int((folder / f"{_key(image)}.checked").read_text())
        image_files.keep(image.path, (folder / f"{_key(image)}.check").read_text(errors="replace"), code)
    except (OSError, ValueError):
        return


def _why(folder: Path, image: WantedImage, job_id: str, state: str) -> Failure | None:
    """Why an image is not there; None where it is."""
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
