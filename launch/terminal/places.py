"""The folders of files that outlive a run: environments, the user's sites and suites, and private clusters."""

import os
import shlex
import stat
from pathlib import Path

from benchmarks.configs import Configs
from benchmarks.errors import RequestError

MOST_LINKS = 40  # on the way to a file, as in Linux


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


def exposed_parents(path: Path) -> list[Path]:
    """Return the links and folders on the way to `path` with which another user, except root, could replace it."""
    found: dict[Path, None] = {}
    ways = [path.absolute()]
    for way in ways:
        below = way
        for place in (way, *way.parents):
            if place.is_symlink():
                if len(ways) < MOST_LINKS:
                    ways.append(place.parent / place.readlink() / way.relative_to(place))
                is_open = False
            elif place == way or not place.exists():
                below = place
                continue
            else:  # in a folder such as /tmp, other users can only create a missing file
                mode = place.stat().st_mode
                is_open = bool(mode & stat.S_IWOTH) and not (mode & stat.S_ISVTX and os.path.lexists(below))
            if is_open or place.lstat().st_uid not in (os.geteuid(), 0):
                found[place] = None
            below = place
    return list(found)


def exposed(path: Path) -> list[Path]:
    """Return `exposed_parents` and, if another user, except root, owns it or can write to it, `path`."""
    status = path.stat() if path.exists() else None
    is_open = status and (status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH)
    return [*exposed_parents(path), *([path] if is_open else [])]


def sites_folder() -> Path:
    """Return the folder of the user's own sites, one YAML file per site. `launch/cluster.py up` also writes one."""
    return stepmark_home() / "sites"


def configs() -> Configs:
    """Return the checkout's configs with the user's own sites and suites."""
    try:
        own = (sites_folder(), stepmark_home() / "suites")
    except RequestError:  # a user without a home folder has no own sites or suites
        return Configs()
    if places := [place for folder in own if folder.exists() for place in exposed(folder)]:
        raise RequestError(
            "another user may have changed your sites and suites",
            where=str(places[0]),
            why="a site names a slurm.conf, which can make Slurm's commands run any program as you",
            next_command=f"chmod go-w {shlex.quote(str(places[0]))}",
        )
    return Configs(own_sites=own[0], own_suites=own[1])
