"""The Slurm of a site, or of a run as it was submitted; a controller that must be waited for is said."""

import sys
from functools import cache

from benchmarks.errors import RequestError
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Site
from launch.slurm.client import Slurm


def slurm_at(site: Site) -> Slurm:
    return Slurm(site, on_wait=_say)


class AskedOnce:
    """The answers of a Slurm about itself, remembered for the many cells of a sweep."""

    def __init__(self, slurm: Slurm) -> None:
        self.partition = cache(slurm.partition)
        self.all_nodes = cache(slurm.all_nodes)
        self.has_pyxis = cache(slurm.has_pyxis)


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
