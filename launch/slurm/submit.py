"""A cluster's queue: a benchmark is refused if it cannot run there, otherwise written down and submitted."""

import contextlib
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarks.backend import Backend
from benchmarks.errors import RequestError, StepmarkError, raised
from benchmarks.job_record import JOB_SCRIPT, SUBMITTED, Submitted
from benchmarks.runs.runfolder import RunFolder, new_run_id, write_atomically
from benchmarks.secret_rules import hidden, shell_secrets
from benchmarks.values import Benchmark, JobOptions, Labels, Plan
from launch.assets import site_hub
from launch.environments.selection import runtime_of
from launch.machine.processes import REPOSITORY, inherited_environment
from launch.running.execute import begin
from launch.slurm import job_script
from launch.slurm.client import Slurm
from launch.slurm.options import kept_from_job, not_adopted
from launch.slurm.refusals import of_the_cluster


class Job(Protocol):
    """What the flags say of every job (launch.running.runners.Job)."""

    hang_timeout: float | None
    telemetry: bool
    labels: Labels


def refusals(
    benchmark: Benchmark, backend: Backend, output_dir: Path, options: JobOptions, slurm: Slurm, notes: list[str]
) -> Iterator[StepmarkError]:
    """Yield every reason why this job could never run there, before anything is made; `notes` get the rest."""
    runtime = runtime_of(benchmark, backend)
    yield from raised(runtime.refuse)
    image = None
    with contextlib.suppress(RequestError):  # it was just said
        image = runtime.image_file()
    yield from raised(lambda: site_hub.refuse(benchmark, backend))
    yield from of_the_cluster(benchmark, options, slurm, output_dir.absolute(), image, notes)


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
    runtime = runtime_of(benchmark, backend)
    image = runtime.image_file()
    job_script.refuse_paths(REPOSITORY, output_dir.absolute() / run_id, str(image) if image else None)
    python, origin = runtime.prepare()
    folder = RunFolder.create(output_dir.absolute(), run_id)
    try:
        plan = job_script.prepared(benchmark, backend, options, container=image is not None)
        kept_off = not_adopted(os.environ)
        notes = [f"kept from the job: {', '.join(kept_off)}"] if kept_off else []
        begin(folder, benchmark, plan, python, origin, job.labels, notes)
        place = _place(folder, python, image, job)
        script = _script(benchmark, plan, place, options, job)
        write_atomically(folder.path / JOB_SCRIPT, script.encode())
        if image is not None and job.telemetry:
            shutil.copyfile(_own_pynvml(), folder.path / job_script.PYNVML)
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
    """Return the job script as it would be submitted, without asking Slurm or making anything.

    Empty if the site has no image or Python for the engine, which is one of the `refusals`.
    """
    runtime = runtime_of(benchmark, backend)
    try:
        image, python = runtime.image_file(), runtime.planned_python()
    except RequestError:
        return ""
    place = _place(RunFolder(output_dir.absolute() / new_run_id(benchmark)), python, image, job)
    plan = job_script.prepared(benchmark, backend, options, container=image is not None)
    return _script(benchmark, plan, place, options, job)


def _script(benchmark: Benchmark, plan: Plan, place: job_script.JobPlace, options: JobOptions, job: Job) -> str:
    paths = (place.run, place.repository, place.python, place.image or "")
    secrets = shell_secrets(os.environ, paths)
    return job_script.render(benchmark, plan, place, options, job.hang_timeout, secrets)


def _submit(folder: RunFolder, benchmark: Benchmark, slurm: Slurm, hang_timeout: float | None) -> None:
    """Written down before and after: a launcher that dies in between leaves a run whose job can be found."""
    submitted = Submitted(
        site=benchmark.site.name,
        job_id=None,
        submitted=time.time(),
        command=[Path(sys.argv[0]).name, *(hidden(word) for word in sys.argv[1:])],
        configuration=benchmark.site.slurm.configuration if benchmark.site.slurm else None,
        hang_timeout=hang_timeout,
    )
    folder.write(SUBMITTED, submitted)
    job_id = slurm.submit(folder.path / JOB_SCRIPT, job_environment())
    folder.write(SUBMITTED, msgspec.structs.replace(submitted, job_id=job_id))


def job_environment() -> dict[str, str]:
    """What a job inherits: tokens travel here, and nothing of the shell that would steer Slurm or the framework."""
    return {name: value for name, value in inherited_environment().items() if not kept_from_job(name)}


def _place(folder: RunFolder, python: str, image: Path | None, job: Job) -> job_script.JobPlace:
    return job_script.JobPlace(
        repository=REPOSITORY,
        run=folder.path.absolute(),
        run_id=folder.run_id,
        python=python,
        image=str(image) if image else None,
        # A container sees no Python of the launcher's, but its pynvml.py, which is pure Python.
        sampler_python=(python if image else sys.executable) if job.telemetry else None,
    )


def _own_pynvml() -> Path:
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise RequestError(
            "the launcher's environment has no nvidia-ml-py, by which the GPUs of a job are sampled",
            where=sys.executable,
            next_command="make install, or --notelemetry",
        )
    return Path(spec.origin)
