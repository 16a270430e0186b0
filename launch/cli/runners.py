"""Choose the runner of a site. The module of a runner is only imported if it is chosen."""

from pathlib import Path

from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.values import Benchmark, Site
from launch.running.runners import Job, LocalRunner, Runner


def runner_of(site: Site, configs: Configs, output_dir: Path, job: Job) -> Runner:
    from launch.environments.selection import refuse_unknown_engines

    refuse_unknown_engines(site)
    if site.slurm is not None:
        from launch.mlperf.submission_runner import SubmissionRunner

        return SubmissionRunner(site, configs, output_dir, job, _refuse_flags)
    if job.typed:
        from launch.slurm.options import refuse_without_slurm

        refuse_without_slurm(site, job.typed)
    return LocalRunner(configs, output_dir, job, _refuse_flags)


def _refuse_flags(benchmark: Benchmark, backend: Backend) -> None:
    from launch.checks.flags_check import refuse_unknown_flags

    refuse_unknown_flags(benchmark, backend)
