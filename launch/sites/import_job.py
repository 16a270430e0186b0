"""The job that imports a site's container images by enroot, and starts each once to see what is in it.

A job, because login nodes seldom have the room for it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.machine import images
from benchmarks.rendering.report import bytes_text
from benchmarks.runs.runfolder import write_atomically
from benchmarks.values import JobOptions, Site, Value
from launch.preflight import job
from launch.preflight.waiting import Limits, wait
from launch.running import interpreters
from launch.sites import image_files
from launch.sites.wanted import WantedImage
from launch.slurm.client import Slurm

MINUTES_AN_IMAGE = 60  # 20 GB from a registry, then packed anew
QUIET_SECONDS = 1800.0
QUEUE_SECONDS = 3600.0
SCRIPT = "import_images.sbatch"


class ImportJob(Value, frozen=True):
    site: Site
    options: JobOptions
    minutes: int | None  # None: by the number of images
    folder: Path
    to_import: list[WantedImage]
    to_check: list[WantedImage]  # there already, and not known yet

    @property
    def images(self) -> list[WantedImage]:
        return [*self.to_import, *self.to_check]


def plan(
    site: Site, options: JobOptions, minutes: int | None, out: Path, wanted: Sequence[WantedImage], force: bool
) -> ImportJob:
    """What of the wanted images is imported, and what is only looked into."""
    to_import = [image for image in wanted if force or not image.path.is_file()]
    there = [image for image in wanted if image not in to_import and not image_files.broken(image.path)]
    to_check = [image for image in there if not image_files.is_known(image.path)]
    folder = job.new_folder(out.absolute(), f"setup-{site.name}")
    return ImportJob(
        site=site, options=options, minutes=minutes, folder=folder, to_import=to_import, to_check=to_check
    )


def run(work: ImportJob) -> dict[str, str]:
    """Submit it and wait for its end; image -> why it could not be imported."""
    if not work.images:
        return {}
    script, text = work.folder / SCRIPT, render(work)
    work.folder.mkdir(parents=True)
    write_atomically(script, text.encode())
    slurm = Slurm(work.site)
    job_id = slurm.submit(script, job.job_environment())
    limits = Limits(queue_seconds=QUEUE_SECONDS, quiet_seconds=QUIET_SECONDS)
    ends = [work.folder / f"{_key(image)}.end" for image in work.images]
    ended = wait(slurm, job_id, _progress(work, job_id), lambda: all(end.exists() for end in ends), limits)
    state = f"the job ended: {ended.state}" if ended else f"nothing came for {QUIET_SECONDS:.0f} s: job cancelled"
    found = {image.image: _why(work.folder, image, job_id, state) for image in work.to_import}
    failures = {image: why for image, why in found.items() if why}
    for image in work.images:
        if image.image not in failures:
            _keep_answer(work.folder, image)
    return failures


def render(work: ImportJob) -> str:
    minutes = work.minutes or MINUTES_AN_IMAGE * len(work.images)
    lines = job.directives(work.options, job.IMPORT_NAME, 1, minutes, work.folder)
    return job.render(
        "import_images.sbatch.j2",
        work.folder,
        site=work.site.name,
        directives=[*lines, "--dependency=singleton"],
        program=interpreters.PROGRAM.relative_to(job.REPOSITORY),
        images=[
            {
                "comment": f"{image.image}: {', '.join(image.engines)}",
                "key": _key(image),
                "uri": job.shell_word(images.import_uri(image.image)) if image in work.to_import else None,
                "file": job.shell_word(str(image.path)),
                "modules": image.modules,
            }
            for image in work.images
        ],
    )


def _key(image: WantedImage) -> str:
    """The name of its log: an image's file name holds nothing that a shell would read."""
    return image.path.stem


def _progress(work: ImportJob, job_id: str) -> Callable[[], tuple[int, str]]:
    def progress() -> tuple[int, str]:
        done = sum((work.folder / f"{_key(image)}.end").exists() for image in work.images)
        parts = [work.folder / f"{_key(image)}.log" for image in work.images]
        parts += [image.path.with_name(f"{image.path.name}.part-{job_id}") for image in work.images]
        written = sum(image_files.size_of(path) for path in parts)
        # Bytes count as progress too: one image may take longer than a silent job is waited for.
        return done * 10**15 + written, f"{done} of {len(work.images)} images are done, {bytes_text(written)}"

    return progress


def _keep_answer(folder: Path, image: WantedImage) -> None:
    """Nothing is kept where no container could be started on the node: that says nothing of the image."""
    try:
        code = int((folder / f"{_key(image)}.checked").read_text())
        image_files.keep(image.path, (folder / f"{_key(image)}.check").read_text(errors="replace"), code)
    except (OSError, ValueError):
        return


def _why(folder: Path, image: WantedImage, job_id: str, state: str) -> str:
    """Why an image is not there; nothing where it is."""
    code = _last_line(folder / f"{_key(image)}.end")
    if code == "0" and image.path.is_file():
        return ""
    log, output = folder / f"{_key(image)}.log", folder / f"slurm-{job_id}.out"
    words = _last_line(log) or _last_line(output)
    how = f"exit code {code}" if code else state
    return f"{how}{f': {words}' if words else ''} ({log if log.exists() else output})"


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:200] if lines else ""
