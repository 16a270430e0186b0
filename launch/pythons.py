"""The search for the Pythons that an environment can be made with.

Looks in PATH, pyenv, uv and the system's folders, starts what it finds (a shim may be nothing but a
complaint) and, when none fits, says exactly what to install.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.backend import LockFile
from benchmarks.errors import RequestError
from launch.programs import end_group

Version = tuple[int, int]

PROBE_SECONDS = 5.0
# Old syntax on purpose: this also runs in a Python 2.
PROBE = (
    "import sys, platform, sysconfig; "
    "print('%d.%d %s %s' % (sys.version_info[0], sys.version_info[1], platform.python_implementation(), "
    "sysconfig.get_config_var('Py_GIL_DISABLED') or 0)); "
    "import venv, ensurepip"
)
# Folders where package managers and people put a Python that need not be in PATH.
SYSTEM_PATTERNS = (
    "/usr/bin/{python}",
    "/usr/local/bin/{python}",
    "/opt/homebrew/bin/{python}",
    "/home/linuxbrew/.linuxbrew/bin/{python}",
    "/opt/homebrew/opt/python@{version}/bin/{python}",
    "/Library/Frameworks/Python.framework/Versions/{version}/bin/{python}",
    "/opt/*/bin/{python}",
    "/opt/*/*/bin/{python}",
)
# What a distribution's own packages offer: (ID, VERSION_ID of /etc/os-release) -> Python.
DISTRIBUTION_PYTHONS = {
    ("debian", "13"): (3, 13),
    ("ubuntu", "24.04"): (3, 12),
    ("ubuntu", "24.10"): (3, 12),
    ("ubuntu", "25.04"): (3, 13),
    ("ubuntu", "25.10"): (3, 13),
}
OS_RELEASE = Path("/etc/os-release")


class Found(NamedTuple):
    """What the search met."""

    fitting: dict[Version, Path]
    no_good: dict[Path, str]  # with its fault


def fitting_versions(*locks: LockFile) -> list[Version]:
    """The Python versions the lock files were made for, the preferred first, which is the oldest."""
    return sorted(
        {
            (lock.python_minimum[0], minor)
            for lock in locks
            for minor in range(lock.python_minimum[1], lock.python_maximum[1] + 1)
        }
    )


def find_pythons(locks: Sequence[LockFile]) -> Found:
    """One Python of each version on this machine that fits any of the lock files."""
    wanted = fitting_versions(*locks)
    found = Found({}, {})
    for candidate in _candidates(wanted):
        version, reason = _probe(candidate)
        if version in wanted and not reason:
            found.fitting.setdefault(version, candidate)
        else:
            found.no_good[candidate] = reason or f"is Python {version[0]}.{version[1]}"
        if len(found.fitting) == len(wanted):
            break
    return found


def span(locks: Sequence[LockFile]) -> str:
    """The Pythons the lock files fit, in words: "3.11", "3.12 to 3.13"."""
    versions = fitting_versions(*locks)
    first, last = (f"{major}.{minor}" for major, minor in (versions[0], versions[-1]))
    return first if first == last else f"{first} to {last}"


# --- where to look ----------------------------------------------------------------------------


def _candidates(wanted: list[Version]) -> Iterator[Path]:
    """Every program that may be a suitable Python, each once, the likelier first."""
    seen: set[tuple[str, str]] = set()
    for path in _places(wanted):
        # The name belongs to the key: one shim program stands behind many names.
        key = (os.path.realpath(path), path.name)
        if key not in seen and os.access(path, os.X_OK) and path.is_file():
            seen.add(key)
            yield path


def _places(wanted: list[Version]) -> Iterator[Path]:
    yield Path(sys.executable)
    folders = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if Path(p).is_absolute()]
    names = [*(f"python{major}.{minor}" for major, minor in wanted), "python3", "python"]
    yield from (folder / name for name in names for folder in folders)
    yield from _pyenv_pythons()
    yield from _uv_pythons()
    for major, minor in wanted:
        version = f"{major}.{minor}"
        for pattern in SYSTEM_PATTERNS:
            place = pattern.format(python=f"python{version}", version=version)
            yield from sorted(Path("/").glob(place.removeprefix("/")))


def _pyenv_pythons() -> list[Path]:
    return _newest_first(_found_in(_folder("PYENV_ROOT", "~/.pyenv"), "versions/*/bin/python"))


def _uv_pythons() -> list[Path]:
    data = _folder("XDG_DATA_HOME", "~/.local/share")
    root = _folder("UV_PYTHON_INSTALL_DIR", str(data / "uv" / "python"))
    return _newest_first(_found_in(root, "*/bin/python3"))


def _found_in(root: Path, pattern: str) -> list[Path]:
    """A folder that cannot be read has no Pythons for us."""
    try:
        return list(root.glob(pattern))
    except OSError:
        return []


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or os.path.expanduser(default))  # noqa: PTH111 (never raises)


def _newest_first(pythons: Iterable[Path]) -> list[Path]:
    """Sorted by the numbers in the name of the version's folder, such as 3.12.1 or cpython-3.12.1-linux."""

    def numbers(path: Path) -> list[int]:
        match = re.search(r"\d+(\.\d+)+", path.parents[1].name)
        return [int(part) for part in match.group().split(".")] if match else []

    return sorted(pythons, key=numbers, reverse=True)


# --- what a program answers -------------------------------------------------------------------


def _probe(python: Path) -> tuple[Version, str]:
    """The version a program answers with, and why it is no good ("" when it is)."""
    try:
        process = subprocess.Popen(
            [str(python), "-E", "-s", "-c", PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return (0, 0), f"cannot be started: {error.strerror}"
    try:
        out, err = process.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        end_group(process, (signal.SIGKILL,))
        return (0, 0), f"gave no answer within {PROBE_SECONDS:g} s"
    except BaseException:
        end_group(process)
        raise
    return _judge(out, err, process.returncode)


def _judge(out: str, err: str, code: int) -> tuple[Version, str]:
    match = re.fullmatch(r"(\d+)\.(\d+) (\w+) (\d)\s*", out)
    if match is None:
        words = (err.strip() or out.strip() or "no output").splitlines()
        return (0, 0), f"fails: {words[0][:80]}"
    version = (int(match[1]), int(match[2]))
    if match[3] != "CPython":
        return version, f"is {match[3]}, not CPython"
    if match[4] != "0":
        return version, "is a free-threaded build"
    if code != 0:
        return version, f"is Python {match[1]}.{match[2]} without venv and ensurepip"
    return version, ""


# --- none fits --------------------------------------------------------------------------------


def no_python(name: str, locks: Sequence[LockFile], found: Found) -> RequestError:
    """What is said of the environment `name` when no Python was found for any of its lock files `locks`."""
    needed = span(locks)
    looked_at = [f"{path} {reason}" for path, reason in found.no_good.items()]
    places = "looked at PATH, pyenv, uv and the system's folders:"
    return RequestError(
        f"no Python {needed} was found to make the environment '{name}' with",
        where="\n         ".join([places, *looked_at]) if looked_at else f"{places} no Python at all",
        why=f"the packages in {' and '.join(lock.path.name for lock in locks)} are pinned for Python {needed}",
        next_command="\n         or: ".join(_ways_to_install(fitting_versions(*locks), found.no_good)),
    )


def _ways_to_install(wanted: list[Version], no_good: dict[Path, str]) -> list[str]:
    by_apt = [f"apt-get install python{a}.{b} python{a}.{b}-venv" for a, b in _apt_pythons(wanted, no_good)]
    major, minor = wanted[0]
    return [*by_apt, f"uv python install {major}.{minor}", f"pyenv install {major}.{minor}"]


def _apt_pythons(wanted: list[Version], no_good: dict[Path, str]) -> list[Version]:
    """The suitable Pythons this Debian or Ubuntu offers: by its release, or one that lacks only its -venv."""
    release = _os_release()
    if release.get("ID") not in ("debian", "ubuntu"):
        return []
    lacking = re.findall(r"is Python (\d+)\.(\d+) without venv", "\n".join(no_good.values()))
    offered = {(int(major), int(minor)) for major, minor in lacking}
    by_release = DISTRIBUTION_PYTHONS.get((release["ID"], release.get("VERSION_ID", "")))
    return [v for v in wanted if v in offered or v == by_release]


def _os_release() -> dict[str, str]:
    try:
        lines = OS_RELEASE.read_text().splitlines()
    except OSError:
        return {}
    return {k: v.strip("\"'") for k, _, v in (line.partition("=") for line in lines) if k}
