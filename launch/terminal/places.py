"""The folders of files that outlive a run: environments, the user's sites and suites, and private clusters."""

import os
import stat
from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.errors import RequestError


def stepmark_home() -> Path:
    """Return $STEPMARK_HOME, otherwise a folder in the user's cache."""
    home = os.environ.get("STEPMARK_HOME")
    if home:
        return Path(home).absolute()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if Path(cache).is_absolute():
        return Path(cache) / "stepmark"
    try:
        return Path.home() / ".cache" / "stepmark"
    except RuntimeError as error:
        raise RequestError(
            "this user has no home folder for the environments",
            where="HOME",
            why=str(error),
            next_command="export STEPMARK_HOME=/tmp/stepmark",
        ) from error


def exposed_parents(folder: Path) -> list[Path]:
    """Return the parent folders in which another user, except root, could replace `folder` or one of its parents."""
    parents = dict.fromkeys((*folder.parents, *folder.resolve().parents))
    found = {parent: parent.stat() for parent in parents}
    return [
        parent
        for parent, status in found.items()
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH
    ]


def sites_folder() -> Path:
    """Return the folder of the user's own sites, one YAML file per site. `launch/cluster.py up` also writes one."""
    return stepmark_home() / "sites"


def configs() -> Configs:
    """Return the checkout's configs with the user's own sites and suites."""
    try:
        return Configs(own_sites=sites_folder(), own_suites=stepmark_home() / "suites")
    except RequestError:  # a user without a home folder has no own sites or suites
        return Configs()
