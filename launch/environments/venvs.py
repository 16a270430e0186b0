"""The virtual environments of backends: find a complete environment, or let making.py create it with uv.

Stepmark makes an environment on first use, and then reuses it. It uses the first lock file of the backend that fits
this machine, and writes the `complete` marker last. Every program that writes into an environment, including uv and
the import check, holds the lock of its `.making` file. The programs inherit the descriptor of that lock, which
`filelock` does not support.
"""

import contextlib
import fcntl
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import files
from benchmarks.backend import EnvironmentSpec, LockFile
from benchmarks.errors import RequestError
from launch.environments.runtime import Origin, Runtime
from launch.terminal.places import refuse_exposed, stepmark_home
from launch.terminal.progress import say

MARKER = "complete"  # the file that only a complete environment has

Version = tuple[int, int]


class Venv(Runtime):
    """A virtual environment that Stepmark creates."""

    def refuse(self) -> None:
        """Refuse a driver that is too old on this machine. The drivers of a cluster's nodes are unknown here."""
        if self.benchmark.site.slurm is None and self.benchmark.hardware.platform == "cuda":
            from benchmarks.machine import refusals
            from launch.machine import machine_gpus

            too_old = refusals.old_driver(self.spec, machine_gpus.detect())
            if too_old is not None:
                raise too_old

    def planned_python(self) -> str:
        lock = self.spec.locks[0]  # the path below assumes the first lock file and its newest Python
        to_be = environment_path(self.spec, lock, lock.python_maximum) / "bin" / "python"
        return str(python_of(self.spec) or to_be)

    def prepare(self) -> tuple[str, Origin]:
        python = ensure(self.spec)
        return str(python), origin(self.spec, python)

    def preview(self, run: Path) -> str:  # noqa: ARG002
        if python_of(self.spec) is not None:
            return ""
        lock = self.spec.locks[0]
        return f"environment '{self.spec.name}' is made on first use from {lock.path.name}, about {lock.size_gb:g} GB"

    def installed_python(self) -> Path | None:
        with contextlib.suppress(RequestError):  # without a home folder, a run that needs the environment is refused
            return python_of(self.spec)
        return None


# --- paths ------------------------------------------------------------------------------------


def environments_root() -> Path:
    return stepmark_home() / "environments"


def environment_path(spec: EnvironmentSpec, lock_file: LockFile, python_version: Version) -> Path:
    """Return the path of the environment from this lock file with this Python, which may not exist yet."""
    major, minor = python_version
    key = _lock_digest(lock_file)[:12]
    # The machine is part of the name because a home folder may be shared by x86_64 and aarch64 nodes.
    return environments_root() / f"{spec.name}-{key}-py{major}.{minor}-{os.uname().machine}"


def _lock_digest(lock_file: LockFile) -> str:
    import hashlib

    return hashlib.sha256(lock_file.path.read_bytes()).hexdigest()


def fitting_versions(*locks: LockFile) -> list[Version]:
    """Return the Python versions that the lock files support, the oldest first."""
    return sorted(
        {
            (lock.python_minimum[0], minor)
            for lock in locks
            for minor in range(lock.python_minimum[1], lock.python_maximum[1] + 1)
        }
    )


def span(locks: Sequence[LockFile]) -> str:
    """Return the Python versions that the lock files support as a text: "3.11", "3.12 to 3.13"."""
    versions = fitting_versions(*locks)
    first, last = (f"{major}.{minor}" for major, minor in (versions[0], versions[-1]))
    return first if first == last else f"{first} to {last}"


# --- reuse ------------------------------------------------------------------------------------


def python_of(spec: EnvironmentSpec) -> Path | None:
    """Return the Python of a complete environment, otherwise None. Takes a millisecond and starts no program."""
    for lock_file in spec.locks:
        for version in fitting_versions(lock_file):
            path = environment_path(spec, lock_file, version)
            python = path / "bin" / "python"
            # os.access follows the link: an environment whose base Python was removed is not complete.
            if os.access(path / MARKER, os.R_OK) and os.access(python, os.X_OK):
                _refuse_another_writer(spec, path)
                return python
    return None


def _refuse_another_writer(spec: EnvironmentSpec, path: Path | None = None) -> None:
    """Refuse an environment that another user, except root, could have changed: its programs run as this user."""
    what = f"another user may have changed the environment '{spec.name}'"
    refuse_exposed(what, stepmark_home(), environments_root())
    if path is None:  # it does not exist yet
        return
    folders = [path / "bin", *path.glob("lib/python*/site-packages")]
    refuse_exposed(what, path, *folders)
    for place in (path / MARKER, *(one for folder in folders for one in folder.iterdir())):
        if (owner := place.lstat().st_uid) not in (os.geteuid(), 0):  # planted while the folder was open
            again = f"rm -r {shlex.quote(str(path))}"
            raise RequestError(what, where=str(place), why=f"user {owner} owns it", next_command=again)


def origin(spec: EnvironmentSpec, python: Path) -> Origin:
    """Return the environment's name and lock file. `lock_file` is None if no lock file has the recorded digest."""
    digest = files.read_json(python.parents[1] / MARKER, dict[str, Any])["lock_sha256"]
    names = {_lock_digest(lock_file): lock_file.path.name for lock_file in spec.locks}
    return {"name": spec.name, "lock_file": names.get(digest), "lock_sha256": digest}


def ensure(spec: EnvironmentSpec) -> Path:
    """Return the Python of the environment; create the environment if it does not exist."""
    if not spec.locks:
        raise RequestError(
            f"'{spec.name}' exists only as a container, not as a virtual environment",
            where="the site's runtime",
            next_command="--runtime=container",
        )
    python = python_of(spec)
    if python is not None:
        return python
    with _only_maker(spec) as lock:
        python = python_of(spec)
        if python is not None:
            say(f"environment '{spec.name}': the other process has created it")
            return python
        return _make_the_first_that_fits(spec, lock)


# --- the choice of a lock file ----------------------------------------------------------------


def _make_the_first_that_fits(spec: EnvironmentSpec, lock: int) -> Path:
    """Make an environment from the first lock file that this machine can use, and return its Python."""
    from launch.environments import making, uv

    pythons, pip = uv.find_pythons(fitting_versions(*spec.locks)), uv.pip_settings()
    without_python = []
    for lock_file in spec.locks:
        versions = [version for version in fitting_versions(lock_file) if version in pythons]
        if not versions:
            without_python.append(lock_file)
            _say_why_not(spec, lock_file, f"found no Python {span([lock_file])}")
        for version in versions:
            path, digest = environment_path(spec, lock_file, version), _lock_digest(lock_file)
            one = making.Making(spec, lock_file, digest, pythons[version], version, path, path / MARKER, pip, lock)
            python = making.make(one)
            if python is not None:
                return python
            why = f"pip's settings do not offer {lock_file.offered} for Python {version[0]}.{version[1]}"
            _say_why_not(spec, lock_file, why)
    if not without_python:
        raise RequestError(
            f"the environment '{spec.name}' cannot be created, because pip's settings do not offer "
            f"{' or '.join(lock_file.offered for lock_file in spec.locks)}",
            where="pip.conf, PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS",
            why="its lock files need a package that is not in the public index; add an index with this package",
            next_command="python3 -m pip config list",
        )
    needed = span(without_python)
    major, minor = fitting_versions(*without_python)[0]
    raise RequestError(
        f"found no Python {needed} for the environment '{spec.name}'",
        where="PATH, pyenv and uv",
        why=f"the packages in {without_python[0].path.name} are pinned for Python {needed}",
        next_command=f"{sys.executable} -m uv python install {major}.{minor}",
    )


def _say_why_not(spec: EnvironmentSpec, lock_file: LockFile, why: str) -> None:
    say(f"environment '{spec.name}': not created from {lock_file.path.name} ({lock_file.size_gb:g} GB): {why}")


# --- the lock ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _only_maker(spec: EnvironmentSpec) -> Iterator[int]:
    """Lock the `.making` file of an environment. While another process has locked it, print a message and wait.

    The name of this file does not depend on the lock file of packages, which is chosen later.
    """
    root = environments_root()
    path = root / f"{spec.name}.making"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _refuse_another_writer(spec)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace") or "unknown"
            say(f"environment '{spec.name}': waiting for process {holder}, which creates it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        raise RequestError(
            "the folder of the environments is not writable or does not support locks",
            where=str(path),
            why=f"{error.strerror}; the first use of a backend creates its environment there",
            next_command='export STEPMARK_HOME="$HOME/.stepmark"',
        ) from error
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)  # this unlocks the file, unless a program that Stepmark started still runs
