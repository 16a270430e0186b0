"""The folders of files that outlive a run: environments, the user's sites and suites, and private clusters."""

import contextlib
import grp
import os
import pwd
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


def others_can_write(path: Path) -> bool:
    """Return whether another user, except root, may write to a file or folder. All checks of writers use this rule.

    A group may write if it is the private group of this user or of root: a group with the user's name and no other
    member. Many systems give each user such a group and the umask 002. An access list counts as other users, because
    its mask is shown as the group's permissions.
    """
    status = path.stat()
    if status.st_mode & stat.S_IWOTH or not status.st_mode & stat.S_IWGRP:
        return bool(status.st_mode & stat.S_IWOTH)
    with contextlib.suppress(OSError):  # a file system without attributes
        if "system.posix_acl_access" in os.listxattr(path):
            return True
    try:
        group = grp.getgrgid(status.st_gid)
        users = {pwd.getpwuid(user).pw_name for user in (os.geteuid(), 0)}
    except KeyError:
        return True
    return group.gr_name not in users or not users.issuperset(group.gr_mem)


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
                is_sticky = place.stat().st_mode & stat.S_ISVTX
                is_open = others_can_write(place) and not (is_sticky and os.path.lexists(below))
            if is_open or place.lstat().st_uid not in (os.geteuid(), 0):
                found[place] = None
            below = place
    return list(found)


def exposed(path: Path) -> list[Path]:
    """Return `exposed_parents` and, if another user, except root, owns it or can write to it, `path`."""
    is_open = path.exists() and (_foreign_owner(path) is not None or others_can_write(path))
    return [*exposed_parents(path), *([path] if is_open else [])]


def _foreign_owner(place: Path) -> int | None:
    """Return the owner of a file, or of the link to it, who is neither this user nor root."""
    owners = [place.lstat().st_uid, *([place.stat().st_uid] if place.exists() else [])]
    return next((owner for owner in owners if owner not in (os.geteuid(), 0)), None)


def refuse_exposed(what: str, *paths: Path, why: str = "STEPMARK_HOME can name your own folder") -> None:
    """Raise RequestError if another user, except root, owns or can write one of the paths or a folder above it."""
    for place in (place for path in paths if os.path.lexists(path) for place in exposed(path)):
        owner = _foreign_owner(place)
        is_planted = owner is not None and place.suffix == ".yml"  # a site or a suite
        raise RequestError(
            what,
            where=str(place),
            why=f"{'other users can write' if owner is None else f'user {owner} owns'} {place}; {why}",
            next_command=f"rm {shlex.quote(str(place))}" if is_planted else remedy(place),
        )


def remedy(place: Path, change: str = "go-w") -> str:
    """Return the command after which other users cannot change Stepmark's files: a chmod, or another folder."""
    if _foreign_owner(place) is None and place.stat().st_uid == os.geteuid():
        show = f"cat -v {shlex.quote(str(place))}; " if place.suffix == ".yml" else ""  # it may have changed
        return f"{show}chmod {change} {shlex.quote(str(place))}"
    return 'export STEPMARK_HOME="$HOME/.stepmark"'


def own_place(*names: str) -> Path:
    """Return a path in Stepmark's home. Refuse it if another user, except root, could have changed it."""
    home, place = stepmark_home(), stepmark_home().joinpath(*names)
    refuse_exposed("another user may have changed Stepmark's files", home, place.parent, place)
    return place


def sites_folder() -> Path:
    """Return the folder of the user's own sites, one YAML file per site. `launch/cluster.py up` also writes one."""
    return stepmark_home() / "sites"


def configs() -> Configs:
    """Return the checkout's configs with the user's own sites and suites."""
    try:
        home, own = stepmark_home(), (sites_folder(), stepmark_home() / "suites")
    except RequestError:  # a user without a home folder has no own sites or suites
        return Configs()
    refuse_exposed(
        "another user may have changed your sites and suites",
        *(home, *own, *(path for folder in own for path in folder.glob("*.yml"))),
        why="a site names a slurm.conf, which can make Slurm's commands run any program with your permissions",
    )
    return Configs(own_sites=own[0], own_suites=own[1])
