"""The job that imports a site's container images by enroot, and starts each once to see what is in it.

A job, because login nodes seldom have the room for it.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.request import images
from benchmarks.text import bytes_text
from launch.environments import image_files
from launch.environments.python_report import PROGRAM
from launch.environments.wanted import WantedImage, Work, wanted_images
from launch.machine.processes import REPOSITORY
from launch.slurm import helper_job
from launch.slurm.waiting import Limits, run_parts

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
    to_check = [image for image in there if not _has_answered(image)]
    return ImportJob(
        work, helper_job.new_folder(work.out.absolute(), f"setup-{work.site.name}"), wanted, to_import, to_check
    )


def _has_answered(image: WantedImage) -> bool:
    """Whether its Python has answered; a node that could not start it may itself have failed."""
    checked = image_files.checked_of(image.path)
    return checked is not None and checked.asked is not None


def run(planned: ImportJob) -> dict[str, Failure]:
    """Submit it and wait for its end; image -> why it could not be imported."""
    if not planned.images:
        return {}
    logs = [planned.folder / f"{_key(image)}.log" for image in planned.images]

    def written(job_id: str) -> int:
        parts = [image.path.with_name(f"{image.path.name}.part-{job_id}") for image in planned.images]
        return sum(image_files.size_of(path) for path in (*logs, *parts))

    job_id, ended = run_parts(
        planned.work.site,
        planned.folder / SCRIPT,
        render(planned),
        [log.with_suffix(".end") for log in logs],
        written,
        lambda done, size: f"{done} of {len(logs)} images are done, {bytes_text(size)}",
        Limits(queue_seconds=QUEUE_SECONDS, quiet_seconds=QUIET_SECONDS),
    )
    state = f"the job ended: {ended.state}" if ended else f"nothing came for {QUIET_SECONDS:.0f} s: job cancelled"
    found = {image.image: _why(planned.folder, image, job_id, state) for image in planned.to_import}
    failures = {image: why for image, why in found.items() if why}
    for image in planned.images:
        if image.image in failures:
            continue
        # Nothing is kept where no container could be started on the node: that says nothing of the image.
        with contextlib.suppress(OSError, ValueError):
            code = int((planned.folder / f"{_key(image)}.checked").read_text())
            answer = (planned.folder / f"{_key(image)}.check").read_text(errors="replace")
            image_files.keep(image.path, answer, code)
    return failures


def render(planned: ImportJob) -> str:
    minutes = planned.work.minutes or MINUTES_AN_IMAGE * len(planned.images)
    lines = helper_job.directives(planned.work.options, helper_job.SETUP_NAME, 1, minutes, planned.folder)
    return helper_job.render(
        TEMPLATE,
        planned.folder,
        site=planned.work.site.name,
        directives=[*lines, "--dependency=singleton"],
        program=PROGRAM.relative_to(REPOSITORY),
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
