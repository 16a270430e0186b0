"""Renders the job of a preflight, as a script a person can read and submit by hand. Nothing is started."""

from pathlib import Path

from benchmarks.text import plural
from benchmarks.values import Hardware, JobOptions, Site, Value
from launch.slurm.helper_job import directives, render, shell_word

TEMPLATE = Path(__file__).with_name("preflight.sbatch.j2")
MOST_ASKED_AGAIN = 16  # more nodes without an answer have a cause in common, which asking again does not mend
AGAIN_SECONDS = 30
JOB_NAME = "stepmark-preflight"
NCCL_PROGRAM = "all_reduce_perf"
# From a size at which the network is busy throughout, so that the average over all sizes means something.
NCCL_ARGUMENTS = "-b 1G -e 8G -f 2 -g 1"


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
    lines = directives(job.options, JOB_NAME, job.nodes, job.minutes, job.folder, gpus)
    return render(
        TEMPLATE,
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
