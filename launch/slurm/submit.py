"""Write the folder of a run and submit the run to a cluster's queue. Refuse a benchmark that cannot run there."""

import contextlib
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from benchmarks.backend import Backend, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError, StepmarkError, capture
from benchmarks.job_record import JOB_SCRIPT, SUBMITTED, JobSubmission
from benchmarks.runs.runfolder import RunFolder, new_run_id, write_atomically
from benchmarks.secret_rules import hidden, shell_secrets
from benchmarks.values import Benchmark, JobOptions, Plan, Site
from launch.assets import site_hub
from launch.environments.selection import runtime_of
from launch.machine.processes import REPOSITORY, inherited_environment
from launch.running.execute import begin
from launch.running.runners import FlagsRefusal, Job, Runner
from launch.slurm import job_script
from launch.slurm.client import Slurm, slurm_of
from launch.slurm.options import choose, kept_from_job, not_adopted
from launch.slurm.refusals import of_the_cluster
from launch.slurm.run_states import states
from launch.terminal.progress import say


class SlurmRunner(Runner):
    """Starts runs as jobs of a Slurm cluster."""

    def __init__(self, site: Site, configs: Configs, output_dir: Path, job: Job, refuse_flags: FlagsRefusal) -> None:
        super().__init__(configs, output_dir, job, refuse_flags)
        self._site = site
        self._options = choose(site, job.typed, os.environ)

    def options_of(self, benchmark: Benchmark) -> JobOptions:  # noqa: ARG002
        """Return the options of a benchmark's job, from the site, the shell and the flags."""
        return self._options

    def refusals(self, benchmark: Benchmark, *, patient: bool = False) -> Iterator[StepmarkError]:
        """Yield every reason why the benchmark could never run on the site. Create nothing."""
        backend = find_backend(benchmark.backend)
        yield from capture(lambda: runtime_of(benchmark, backend).refuse())
        image, notes = None, list[str]()
        with contextlib.suppress(RequestError):  # runtime.refuse() has already reported it
            image = runtime_of(benchmark, backend).image_file()
        yield from capture(lambda: site_hub.refuse(benchmark, backend))
        slurm = Slurm(self._site) if patient else self._asked_once
        output_dir = self._output_dir.absolute()
        yield from of_the_cluster(benchmark, self.options_of(benchmark), slurm, output_dir, image, notes)
        for text in notes if patient else ():
            print(f"note: {text}", file=sys.stderr)

    @cached_property
    def _asked_once(self) -> Slurm:
        return Slurm(self._site, patience_seconds=0)

    def plan(self, benchmark: Benchmark, backend: Backend) -> Plan:
        in_container = benchmark.site.runtime == "container"
        return job_script.job_plan(benchmark, backend, self.options_of(benchmark), container=in_container)

    def preview(self, benchmark: Benchmark, backend: Backend) -> str:
        """Return the job script as it would be submitted, without asking Slurm or creating any file.

        Return an empty text if the site has no image or Python for the engine; `refusals` reports that.
        """
        try:
            runtime = runtime_of(benchmark, backend)
            image, python = runtime.image_file(), runtime.planned_python()
        except RequestError:
            return ""
        options = self.options_of(benchmark)
        folder = RunFolder(self._output_dir.absolute() / new_run_id(benchmark))
        plan = job_script.job_plan(benchmark, backend, options, container=image is not None)
        return f"job.sbatch\n\n{_script(folder, benchmark, plan, python, image, options, self._job)}".rstrip("\n")

    def start(self, benchmark: Benchmark, run_id: str) -> None:
        backend, options = find_backend(benchmark.backend), self.options_of(benchmark)
        submit(benchmark, backend, self._output_dir, run_id, options, Slurm(self._site), self._job)

    def ended(self, run_ids: Sequence[str]) -> set[str]:
        """Collect and return the runs that have left Slurm's queue. After a failure, continue with the other runs.

        Cancel a job that can never start; the next call collects its run.
        """
        folders = [RunFolder(self._output_dir / run_id) for run_id in run_ids]
        never_submitted = {folder.run_id for folder in folders if not (folder.path / SUBMITTED).exists()}
        rows = states(folder for folder in folders if folder.run_id not in never_submitted)
        for row in rows:
            if row.impossible and row.job_id:
                say(f"job {row.job_id} was cancelled, because it can never start: {row.impossible}")
                slurm_of(row.folder).cancel(row.job_id)
        if rows and all(row.problems for row in rows):
            raise RunError(rows[0].problems[0])
        return never_submitted | {row.folder.run_id for row in rows if row.ended or row.state == "not submitted"}


def submit(
    benchmark: Benchmark,
    backend: Backend,
    output_dir: Path,
    run_id: str,
    options: JobOptions,
    slurm: Slurm,
    job: Job,
) -> None:
    """Submit a run to the queue. Its folder then has all files that are needed to follow and collect the run."""
    runtime = runtime_of(benchmark, backend)
    image = runtime.image_file()
    python, origin = runtime.prepare()
    folder = RunFolder.create(output_dir.absolute(), run_id)
    try:
        plan = job_script.job_plan(benchmark, backend, options, container=image is not None)
        kept_off = not_adopted(os.environ)
        notes = [f"variables that the job does not inherit: {', '.join(kept_off)}"] if kept_off else []
        begin(folder, benchmark, plan, python, origin, job.labels, notes)
        script = _script(folder, benchmark, plan, python, image, options, job)
        write_atomically(folder.path / JOB_SCRIPT, script.encode())
        if image is not None and job.telemetry:
            own = importlib.util.find_spec("pynvml")
            assert own is not None and own.origin is not None  # one of the launcher's requirements
            shutil.copyfile(own.origin, folder.path / job_script.PYNVML)
    except BaseException:
        shutil.rmtree(folder.path)  # nothing was started, so remove the folder
        raise
    try:
        _submit(folder, benchmark, slurm, job.hang_timeout)
    except RequestError:  # Slurm refused the job; after any other error it may still have the job
        shutil.rmtree(folder.path)
        raise


def _script(
    folder: RunFolder,
    benchmark: Benchmark,
    plan: Plan,
    python: str,
    image: Path | None,
    options: JobOptions,
    job: Job,
) -> str:
    place = job_script.JobPlace(
        repository=REPOSITORY,
        run=folder.path.absolute(),
        run_id=folder.run_id,
        python=python,
        image=str(image) if image else None,
        # A container cannot use the launcher's Python, but it can use pynvml.py, which is pure Python.
        sampler_python=(python if image else sys.executable) if job.telemetry else None,
    )
    secrets = shell_secrets(os.environ, (place.run, place.repository, place.python, place.image or ""))
    return job_script.render(benchmark, plan, place, options, job.hang_timeout, secrets)


def _submit(folder: RunFolder, benchmark: Benchmark, slurm: Slurm, hang_timeout: float | None) -> None:
    """Submit the job. Write SUBMITTED before and after that, so that no job is lost if the launcher is killed."""
    submitted = JobSubmission(
        site=benchmark.site.name,
        job_id=None,
        submitted=time.time(),
        command=[Path(sys.argv[0]).name, *(hidden(word) for word in sys.argv[1:])],
        configuration=benchmark.site.slurm.configuration if benchmark.site.slurm else None,
        hang_timeout=hang_timeout,
    )
    folder.write(SUBMITTED, submitted)
    # The job inherits tokens, but no shell variables that would change the behaviour of Slurm or the framework.
    environment = {name: value for name, value in inherited_environment().items() if not kept_from_job(name)}
    job_id = slurm.submit(folder.path / JOB_SCRIPT, environment)
    folder.write(SUBMITTED, msgspec.structs.replace(submitted, job_id=job_id))
