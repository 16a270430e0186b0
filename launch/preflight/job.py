"""Renders the jobs that get a cluster ready, as scripts a person can read and submit by hand. Nothing is started."""

import os
import shlex
import time
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.secret_rules import shell_secrets
from benchmarks.text import plural
from benchmarks.values import Hardware, JobOptions, Site, Value
from launch.slurm.job_script import directive_lines, fill, one_line, refuse_secrets
from launch.slurm.options import kept_from_job

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]

MOST_ASKED_AGAIN = 16  # more nodes without an answer have a cause in common, which asking again does not mend
AGAIN_SECONDS = 30
NCCL_PROGRAM = "all_reduce_perf"
# From a size at which the network is busy throughout, so that the average over all sizes means something.
NCCL_ARGUMENTS = "-b 1G -e 8G -f 2 -g 1"
# Not the name of a run's job: site.slurm.options.singleton makes runs wait for each other, not for these.
PREFLIGHT_NAME, IMPORT_NAME = "stepmark-preflight", "stepmark-setup"


class PreflightJob(Value, frozen=True):
    """What the script of a preflight says."""

    site: Site
    options: JobOptions
    folder: Path
    nodes: int
    minutes: int
    hardware: Hardware | None  # the GPUs that NCCL is measured over; None: it is not measured
    image: Path | None = None  # that nccl-tests are run in


def render_preflight(job: PreflightJob) -> str:
    gpus = job.hardware.devices_per_node if job.hardware else 0
    lines = directives(job.options, PREFLIGHT_NAME, job.nodes, job.minutes, job.folder, gpus)
    return render(
        "preflight.sbatch.j2",
        job.folder,
        site=job.site.name,
        nodes=plural(job.nodes, "node", "nodes"),
        directives=[*lines, "--no-kill"],
        most_asked_again=MOST_ASKED_AGAIN,
        again_seconds=AGAIN_SECONDS,
        nccl=job.hardware is not None,
        gpus=gpus,
        environment=[(name, shell_word(value)) for name, value in job.site.environment.items()],
        nccl_program=NCCL_PROGRAM,
        nccl_arguments=NCCL_ARGUMENTS,
        nccl_options=_nccl_options(job),
    )


def _nccl_options(job: PreflightJob) -> list[str]:
    found = [f"--mpi={shell_word(job.options.mpi)}"] if job.options.mpi else []
    container = job.site.container
    if job.image is not None and container is not None:
        found.append(f"--container-image={shell_word(str(job.image))}")
        found.append("--container-mount-home" if container.mount_home else "--no-container-mount-home")
        if container.mounts:
            found.append(f"--container-mounts={shell_word(','.join(container.mounts))}")
    return found


def directives(options: JobOptions, name: str, nodes: int, minutes: int, folder: Path, gpus: int = 0) -> list[str]:
    """The job's options as #SBATCH takes them; `gpus` of each node."""
    output = folder / "slurm-%j.out"
    own = {"job-name": name, "nodes": nodes, "ntasks-per-node": 1, "time": minutes, "output": output}
    return directive_lines(options, {**own, "no-requeue": True}, gpus)


def new_folder(parent: Path, name: str) -> Path:
    """The folder of a job that is about to be submitted: a new one, also within one second."""
    base = parent / f"{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (base if place == 1 else base.with_name(f"{base.name}-{place}") for place in count(1))
    return next(folder for folder in names if not folder.exists())


def shell_word(text: str) -> str:
    return shlex.quote(one_line(text))


def render(template: str, folder: Path, **values: Any) -> str:
    words = {"folder": shell_word(str(folder)), "repository": shell_word(str(REPOSITORY))}
    text = fill(HERE / template, **words, **values)
    refuse_secrets(text, template.removesuffix(".j2"), shell_secrets(paths=(REPOSITORY, folder)))
    return text


def job_environment() -> dict[str, str]:
    """What such a job inherits: nothing that would make sbatch overrule its script."""
    return {name: value for name, value in os.environ.items() if not kept_from_job(name)}
