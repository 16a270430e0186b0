"""The search for a Python that an environment can be made with.

Looks in PATH, pyenv, uv and the system's folders, starts what it finds (a shim may be nothing but a
complaint) and, when none fits, says exactly what to install.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.backend import EnvironmentSpec
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


class Python(NamedTuple):
    path: Path
    version: Version


def fitting_versions(spec: EnvironmentSpec) -> list[Version]:
    """The Python versions the lock file was made for, the preferred first."""
    (major, first), (_, last) = spec.python_minimum, spec.python_maximum
    return [(major, minor) for minor in range(first, last + 1)]


def find_python(spec: EnvironmentSpec) -> Python:
    """A Python on this machine that the environment can be made with: the oldest that fits is preferred."""
    wanted = fitting_versions(spec)
    fitting: dict[Version, Path] = {}
    no_good: dict[Path, str] = {}
    for candidate in _candidates(wanted):
        version, reason = _probe(candidate)
        if version in wanted and not reason:
            fitting.setdefault(version, candidate)
        else:
            no_good[candidate] = reason or f"is Python {version[0]}.{version[1]}"
        if wanted[0] in fitting:
            break
    if not fitting:
        raise _no_python(spec, no_good)
    best = min(fitting)
    return Python(fitting[best], best)


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
    root = _folder("PYENV_ROOT", "~/.pyenv")
    return _newest_first(root.glob("versions/*/bin/python"))


def _uv_pythons() -> list[Path]:
    data = _folder("XDG_DATA_HOME", "~/.local/share")
    root = _folder("UV_PYTHON_INSTALL_DIR", str(data / "uv" / "python"))
    return _newest_first(root.glob("*/bin/python3"))


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


def _no_python(spec: EnvironmentSpec, no_good: dict[Path, str]) -> RequestError:
    first, last = (".".join(map(str, v)) for v in (spec.python_minimum, spec.python_maximum))
    needed = first if first == last else f"{first} to {last}"
    looked_at = [f"{path} {reason}" for path, reason in no_good.items()]
    places = "looked at PATH, pyenv, uv and the system's folders:"
    return RequestError(
        f"no Python {needed} was found to make the environment '{spec.name}' with",
        where="\n         ".join([places, *looked_at]) if looked_at else f"{places} no Python at all",
        why=f"the packages in {spec.lock_file.name} are pinned for Python {needed}",
        next_command="\n         or: ".join(_ways_to_install(spec, no_good)),
    )


def _ways_to_install(spec: EnvironmentSpec, no_good: dict[Path, str]) -> list[str]:
    by_apt = [f"apt-get install python{a}.{b} python{a}.{b}-venv" for a, b in _apt_pythons(spec, no_good)]
    major, minor = spec.python_minimum
    return [*by_apt, f"uv python install {major}.{minor}", f"pyenv install {major}.{minor}"]


def _apt_pythons(spec: EnvironmentSpec, no_good: dict[Path, str]) -> list[Version]:
    """The suitable Pythons this Debian or Ubuntu offers: by its release, or one that lacks only its -venv."""
    release = _os_release()
    if release.get("ID") not in ("debian", "ubuntu"):
        return []
    lacking = re.findall(r"is Python (\d+)\.(\d+) without venv", "\n".join(no_good.values()))
    offered = {(int(major), int(minor)) for major, minor in lacking}
    by_release = DISTRIBUTION_PYTHONS.get((release["ID"], release.get("VERSION_ID", "")))
    return [v for v in fitting_versions(spec) if v in offered or v == by_release]


def _os_release() -> dict[str, str]:
    try:
        lines = OS_RELEASE.read_text().splitlines()
    except OSError:
        return {}
    return {k: v.strip("\"'") for k, _, v in (line.partition("=") for line in lines) if k}
