"""Where Stepmark keeps what outlives a run: environments, this user's sites and suites, the private cluster."""

import os
import stat
from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.errors import RequestError


def stepmark_home() -> Path:
    """$STEPMARK_HOME, or a folder in the user's cache."""
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
    """Return the folders above it in which another user than root could put another folder in its place."""
    parents = dict.fromkeys((*folder.parents, *folder.resolve().parents))
    found = {parent: parent.stat() for parent in parents}
    return [
        parent
        for parent, status in found.items()
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH
    ]


def sites_folder() -> Path:
    """One YAML file a site of this user's own; `launch/cluster.py up` writes one too."""
    return stepmark_home() / "sites"


def suites_folder() -> Path:
    """One YAML file a nightly suite of this user's own."""
    return stepmark_home() / "suites"


def configs() -> Configs:
    """The checkout's configs, and the sites and suites of this user."""
    try:
        return Configs(own_sites=sites_folder(), own_suites=suites_folder())
    except RequestError:  # no home: the checkout's are all there is
        return Configs()
