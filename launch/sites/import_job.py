"""The job that imports a site's container images by enroot.

A job, because login nodes seldom have the room for it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.request import images
from benchmarks.text import bytes_text
from launch.environments import image_files
from launch.environments.wanted import WantedImage, Work, wanted_images
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


def plan(work: Work) -> ImportJob:
    """What of the wanted images is imported."""
    wanted = wanted_images(work.site, work.engines, work.devices, work.image)
    to_import = [image for image in wanted if work.force or not image.path.is_file()]
    return ImportJob(work, helper_job.new_folder(work.out.absolute(), f"setup-{work.site.name}"), wanted, to_import)


def run(planned: ImportJob) -> dict[str, Failure]:
    """Submit it and wait for its end; image -> why it could not be imported."""
    if not planned.to_import:
        return {}
    logs = [planned.folder / f"{_key(image)}.log" for image in planned.to_import]

    def written(job_id: str) -> int:
        parts = [image.path.with_name(f"{image.path.name}.part-{job_id}") for image in planned.to_import]
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
    return {image: why for image, why in found.items() if why}


def render(planned: ImportJob) -> str:
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
