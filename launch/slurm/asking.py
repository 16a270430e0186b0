"""The Slurm of a site, or of a run as it was submitted; a controller that must be waited for is said."""

import sys

from benchmarks.errors import RequestError
from benchmarks.runfolder import RunFolder
from benchmarks.values import Site
from launch.slurm.client import Slurm


def slurm_at(site: Site) -> Slurm:
    return Slurm(site, on_wait=_say)


def slurm_of(folder: RunFolder, patience_seconds: float | None = None) -> Slurm:
    """The cluster of a run, as it was configured when the run was submitted."""
    site = folder.benchmark().site
    if site.slurm is None:
        raise RequestError(
            f"the run is none of a queue: it ran on site '{site.name}'",
            where=str(folder.path),
            next_command=f"python launch/verify.py {folder.path}",
        )
    if patience_seconds is None:
        return slurm_at(site)
    return Slurm(site, patience_seconds)  # who asks again and again says so itself


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
