"""A benchmark -> a job in a cluster's queue: refused where it cannot run, else written down and submitted."""

import hashlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarks.backend import Backend, EnvironmentSpec
from benchmarks.errors import RequestError
from benchmarks.queue.job_record import JOB_SCRIPT, SUBMITTED, Submitted
from benchmarks.runfolder import RunFolder, new_run_id, write_atomically
from benchmarks.values import Benchmark, JobOptions, Labels, Plan
from launch import environments, kept_profiles, provenance
from launch.execute import begin
from launch.local import REPOSITORY, inherited_environment
from launch.slurm import images, job_script, refusals
from launch.slurm.client import Slurm
from launch.slurm.options import not_adopted, of_the_scheduler

ENDS_BYTES = 2**20


class Job(Protocol):
    """What the flags say of every job (launch.runners.Job)."""

    hang_timeout: float | None
    telemetry: bool
    labels: Labels


def refuse(benchmark: Benchmark, backend: Backend, output_dir: Path, options: JobOptions, slurm: Slurm) -> None:
    """Before anything is made: could this job ever run there?"""
    image = images.image_of(backend.environment(benchmark.engine), benchmark.site)
    for note in refusals.refuse(benchmark, options, slurm, output_dir.absolute(), image):
        print(f"note: {note}", file=sys.stderr)


def submit(
    benchmark: Benchmark,
    backend: Backend,
    output_dir: Path,
    run_id: str,
    options: JobOptions,
    slurm: Slurm,
    job: Job,
) -> RunFolder:
    """Put a run into the queue; its folder, which then holds all that is needed to follow and collect it."""
    spec = backend.environment(benchmark.engine)
    image = images.image_of(spec, benchmark.site)
    job_script.refuse_paths(REPOSITORY, output_dir.absolute() / run_id, str(image) if image else None)
    python, environment = _runtime(spec, image)
    benchmark = kept_profiles.with_kept_profile(benchmark, backend, output_dir.absolute(), environment)
    folder = RunFolder.create(output_dir.absolute(), run_id)
    try:
        plan = begin(folder, benchmark, backend, python, environment, job.labels, _kept_off())
        place = _place(folder, python, image)
        script = _script(benchmark, plan, place, options, job)
        write_atomically(folder.path / JOB_SCRIPT, script.encode())
    except BaseException:
        shutil.rmtree(folder.path)  # nothing was started, so nothing is left
        raise
    try:
        _submit(folder, benchmark, slurm, job.hang_timeout)
    except RequestError:  # Slurm has refused it; after anything else it may have the job all the same
        shutil.rmtree(folder.path)
        raise
    return folder


def preview(benchmark: Benchmark, backend: Backend, output_dir: Path, options: JobOptions, job: Job) -> str:
    """The job script as it would be submitted; asks no Slurm and makes nothing."""
    spec = backend.environment(benchmark.engine)
    image = images.image_of(spec, benchmark.site)
    folder = RunFolder(output_dir.absolute() / new_run_id(benchmark))
    python = spec.image_python if image else str(environments.python_of(spec) or environments.python_to_be(spec))
    place = _place(folder, python, image)
    return _script(benchmark, backend.plan(benchmark), place, options, job)


def runs_in(benchmark: Benchmark, backend: Backend) -> dict[str, str | None]:
    """What can be said beforehand of the container a job runs in; nothing where there is none, or not here."""
    spec = backend.environment(benchmark.engine)
    image = images.image_of(spec, benchmark.site)
    return of_image(spec, image) if image is not None and image.is_file() else {}


def of_image(spec: EnvironmentSpec, image: Path) -> dict[str, str | None]:
    """What is written down of a container's image."""
    about = image.stat()
    written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(about.st_mtime))
    return {
        "name": spec.name,
        "image": spec.image,
        "file": str(image),
        "file_bytes": str(about.st_size),
        "file_written": written,
        "image_digest": _digest_of_ends(image, about.st_size),
    }


def _digest_of_ends(image: Path, size: int) -> str:
    """Tells images apart wherever they lie: its length, its first and its last MiB.

    A squashfs file begins with when it was made and how much is in it, and ends with its table of files. To read all
    of its tens of GB at each submission would take minutes.
    """
    digest = hashlib.sha256(str(size).encode())
    with image.open("rb") as file:
        for start in (0, max(0, size - ENDS_BYTES)):
            file.seek(start)
            digest.update(file.read(ENDS_BYTES))
    return f"ends-sha256:{digest.hexdigest()}"


def _script(benchmark: Benchmark, plan: Plan, place: job_script.JobPlace, options: JobOptions, job: Job) -> str:
    secrets = job_script.secret_values(os.environ)
    return job_script.render(benchmark, plan, place, options, job.hang_timeout, job.telemetry, secrets)


def _submit(folder: RunFolder, benchmark: Benchmark, slurm: Slurm, hang_timeout: float | None) -> None:
    """Written down before and after: a launcher that dies in between leaves a run whose job can be found."""
    submitted = Submitted(
        site=benchmark.site.name,
        job_id=None,
        submitted=time.time(),
        command=[provenance.scrub(word) for word in provenance.command_line()],
        configuration=benchmark.site.slurm.configuration if benchmark.site.slurm else None,
        hang_timeout=hang_timeout,
    )
    folder.write(SUBMITTED, submitted)
    job_id = slurm.submit(folder.path / JOB_SCRIPT, job_environment())
    folder.write(SUBMITTED, msgspec.structs.replace(submitted, job_id=job_id))


def job_environment() -> dict[str, str]:
    """What a job inherits: tokens travel here, and nothing of the shell that would steer Slurm or the framework."""
    kept_off = set(of_the_scheduler(os.environ))
    return {name: value for name, value in inherited_environment().items() if name not in kept_off}


def _kept_off() -> list[str]:
    names = not_adopted(os.environ)
    return [f"kept from the job: {', '.join(names)}"] if names else []


def _place(folder: RunFolder, python: str, image: Path | None) -> job_script.JobPlace:
    return job_script.JobPlace(
        repository=REPOSITORY,
        run=folder.path.absolute(),
        run_id=folder.run_id,
        python=python,
        image=str(image) if image else None,
        # The launcher's own Python reads NVML; a container has one of its own that does.
        sampler_python=python if image else sys.executable,
    )


def _runtime(spec: EnvironmentSpec, image: Path | None) -> tuple[str, dict[str, str | None]]:
    """The Python of the job, and what is written down of where it is from."""
    if image is not None:
        return spec.image_python, of_image(spec, image)
    python = environments.ensure(spec)
    return str(python), environments.origin(spec, python)
