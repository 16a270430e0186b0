"""The folders of a private cluster: this user's alone, because who enters them owns the cluster.

mariadbd and munged give their sockets to everybody, so a folder around them must keep others out.
"""

import os
import stat
from pathlib import Path

from benchmarks.errors import RequestError

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make(folder: Path) -> None:
    """Makes the folder for this user only, whatever the umask; RequestError where others can enter it."""
    make_way(folder)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        refuse_shared(folder)


def make_way(path: Path) -> None:
    """Makes the parents of a path, whatever the umask not writable by others."""
    for parent in reversed(path.parents):
        parent.mkdir(mode=0o755, exist_ok=True)


def refuse_shared(folder: Path) -> None:
    """RequestError where another user could enter the folder, or put one of theirs in its place."""
    for parent in folder.parents:
        if parent.exists() and _others_may_replace(parent):
            raise _refusal(parent, "others may rename what is in it", f"chmod o-w {parent}")
    try:
        state = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(state.st_mode):
        raise _refusal(folder, "it is no folder", f"mv {folder} {folder}.old")
    if state.st_uid != os.geteuid():
        raise _refusal(folder, f"it belongs to user {state.st_uid}", f"mv {folder} {folder}.old")
    if state.st_mode & OTHERS:
        mode = stat.S_IMODE(state.st_mode)
        raise _refusal(folder, f"its mode is {mode:04o}: others may enter it", f"chmod 700 {folder}")


def _others_may_replace(parent: Path) -> bool:
    mode = parent.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _refusal(folder: Path, why: str, mend: str) -> RequestError:
    return RequestError(
        "other users could take over a private cluster in this folder",
        where=str(folder),
        why=f"{why}; the sockets and keys in it open the cluster to whoever reads them",
        next_command=f"{mend}     (or export STEPMARK_HOME=<a folder of your own>)",
    )
