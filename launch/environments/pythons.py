"""The Pythons that an environment can be made with: uv looks for them, and downloads none.

It looks in its own folder, in PATH and, told to by us, where pyenv and systems put theirs. Where none
fits, the refusal says how to install one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.backend import LockFile
from benchmarks.errors import RequestError

MARKER = "complete"  # the file that an environment has when it is whole
Version = tuple[int, int]

SEARCH_SECONDS = 60.0
# Folders where package managers and people put a Python that need not be in PATH.
SYSTEM_FOLDERS = (
    "/usr/bin",
    "/usr/local/bin",
    "/opt/homebrew/bin",
    "/home/linuxbrew/.linuxbrew/bin",
    "/opt/homebrew/opt/python@*/bin",
    "/Library/Frameworks/Python.framework/Versions/*/bin",
    "/opt/*/bin",
    "/opt/*/*/bin",
)


def fitting_versions(*locks: LockFile) -> list[Version]:
    """The Python versions the lock files were made for, the preferred first, which is the oldest."""
    return sorted(
        {
            (lock.python_minimum[0], minor)
            for lock in locks
            for minor in range(lock.python_minimum[1], lock.python_maximum[1] + 1)
        }
    )


def find_pythons(locks: Sequence[LockFile]) -> dict[Version, Path]:
    """One Python of each version on this machine that fits any of the lock files."""
    answers = {(a, b): _ask_uv("find", "--system", f"cpython@{a}.{b}") for a, b in fitting_versions(*locks)}
    return {version: Path(answer[0]) for version, answer in answers.items() if answer}


def span(locks: Sequence[LockFile]) -> str:
    """The Pythons the lock files fit, in words: "3.11", "3.12 to 3.13"."""
    versions = fitting_versions(*locks)
    first, last = (f"{major}.{minor}" for major, minor in (versions[0], versions[-1]))
    return first if first == last else f"{first} to {last}"


def _ask_uv(*words: str) -> list[str]:
    """The lines `uv python` answers with; none where it fails."""
    from launch.environments.uv_settings import uv, variables

    search = {"PATH": os.pathsep.join(map(str, _folders()))}
    command = uv("python", *words)
    try:
        asked = subprocess.run(
            command, env=variables({}) | search, capture_output=True, text=True, timeout=SEARCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RequestError(
            "the search for a Python gets no answer",
            where=f"PATH={search['PATH']}",
            why=f"a program named python in one of these folders does not end within {SEARCH_SECONDS:g} s",
            next_command="start each with --version; take the folder of the one that hangs out of PATH",
        ) from error
    return asked.stdout.splitlines() if asked.returncode == 0 else []


def _folders() -> list[Path]:
    """Where to look, the likelier first."""
    path = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if Path(p).is_absolute()]
    pyenv = Path(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"))  # noqa: PTH111 (never raises)
    system = [folder for place in SYSTEM_FOLDERS for folder in _found_in(Path("/"), place.removeprefix("/"))]
    of_pyenv = sorted(_found_in(pyenv, "versions/*/bin"), key=_numbers, reverse=True)
    return [Path(sys.base_prefix) / "bin", *path, *of_pyenv, *system]


def _found_in(root: Path, pattern: str) -> list[Path]:
    """A folder that cannot be read has no Pythons for us."""
    try:
        return sorted(root.glob(pattern))
    except OSError:
        return []


def _numbers(folder: Path) -> list[int]:
    """Those in the name of pyenv's folder of a version."""
    return [int(part) for part in re.findall(r"\d+", folder.parent.name)]


def no_python(name: str, locks: Sequence[LockFile]) -> RequestError:
    """What is said of the environment `name` when no Python was found for any of its lock files `locks`."""
    needed = span(locks)
    major, minor = fitting_versions(*locks)[0]
    found = {line.split()[0]: line for line in reversed(_ask_uv("list", "--only-installed"))}  # one of each version
    places = "looked at PATH, pyenv, uv and the system's folders:"
    return RequestError(
        f"no Python {needed} was found to make the environment '{name}' with",
        where="\n         ".join([places, *found.values()]) if found else f"{places} no Python at all",
        why=f"the packages in {' and '.join(lock.path.name for lock in locks)} are pinned for Python {needed}",
        next_command=f"{sys.executable} -m uv python install {major}.{minor}     (or install one by other means)",
    )
