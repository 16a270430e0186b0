"""Render the scripts of jobs that prepare a cluster. Nothing is started."""

import os
import shlex
import time
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.secret_rules import shell_secrets
from benchmarks.values import JobOptions
from launch.machine.processes import REPOSITORY
from launch.slurm.job_script import directive_lines, fill, one_line, refuse_secrets
from launch.slurm.options import kept_from_job

# Differs from the name of a run's job, so that with the option `singleton` runs do not wait for helper jobs.
SETUP_NAME = "stepmark-setup"


def directives(options: JobOptions, name: str, nodes: int, minutes: int, folder: Path, gpus: int = 0) -> list[str]:
    """Return the `#SBATCH` lines of the job; `gpus` is the number of GPUs per node."""
    output = folder / "slurm-%j.out"
    own = {"job-name": name, "nodes": nodes, "ntasks-per-node": 1, "time": minutes, "output": output}
    return directive_lines(options, {**own, "no-requeue": True}, gpus)


def new_folder(parent: Path, name: str) -> Path:
    """Return an unused path for the folder of a new job, even for two jobs in one second."""
    base = parent / f"{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (base if place == 1 else base.with_name(f"{base.name}-{place}") for place in count(1))
    return next(folder for folder in names if not folder.exists())


def shell_word(text: str) -> str:
    return shlex.quote(one_line(text))


def render(template: Path, folder: Path, **values: Any) -> str:
    words = {"folder": shell_word(str(folder)), "repository": shell_word(str(REPOSITORY))}
    text = fill(template, **words, **values)
    refuse_secrets(text, template.name.removesuffix(".j2"), shell_secrets(paths=(REPOSITORY, folder)))
    return text


def job_environment() -> dict[str, str]:
    """Return this shell's variables for a helper job, without the variables that would override the script."""
    return {name: value for name, value in os.environ.items() if not kept_from_job(name)}
