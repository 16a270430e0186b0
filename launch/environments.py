"""The virtual environments backends run in: where they are, whether they are whole, how to get one.

An environment is made from its backend's lock file on first use and reused ever after. It is whole
when its `complete` marker is there, which is written last; whoever writes into an environment, pip
and its import check included, holds its lock file. Knows no backend and no framework by name.

How one is made is in making.py, and below that: pythons.py finds the Python, installing.py has pip
install, programs.py runs each program, making_progress.py shows how far it is.
"""

import contextlib
import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import RequestError
from launch.making import MARKER, make
from launch.making_progress import Say
from launch.programs import Making
from launch.pythons import find_python, fitting_versions

WAIT_NOTE_SECONDS = 60.0


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- places -----------------------------------------------------------------------------------


def environments_root() -> Path:
    """The folder of all environments: $STEPMARK_HOME/environments, or the user's cache."""
    home = os.environ.get("STEPMARK_HOME")
    if home:
        return Path(home).absolute() / "environments"
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if Path(cache).is_absolute():
        return Path(cache) / "stepmark" / "environments"
    return _user_home() / ".cache" / "stepmark" / "environments"


def _user_home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise RequestError(
            "this user has no home folder, so there is no place for the environments",
            where="HOME",
            why=str(error),
            next_command="export STEPMARK_HOME=<a folder that this user can write>",
        ) from error


def environment_path(spec: EnvironmentSpec, python_version: tuple[int, int] | None = None) -> Path:
    """Where the environment is, or would be: the whole one if there is one, else the preferred Python's."""
    if python_version is None:
        whole = python_of(spec)
        if whole is not None:
            return whole.parents[1]
    major, minor = python_version or spec.python_minimum
    # The machine is part of the name because a home folder may be shared by x86_64 and aarch64 nodes.
    return environments_root() / f"{_key(spec)}-py{major}.{minor}-{os.uname().machine}"


def _key(spec: EnvironmentSpec) -> str:
    return f"{spec.name}-{_lock_digest(spec)[:12]}"


def _lock_digest(spec: EnvironmentSpec) -> str:
    try:
        return hashlib.sha256(spec.lock_file.read_bytes()).hexdigest()
    except OSError as error:
        raise RequestError(
            f"the lock file of the environment '{spec.name}' cannot be read",
            where=str(spec.lock_file),
            why=error.strerror or str(error),
            next_command="install Stepmark again, or `make lock` in a checkout",
        ) from error


# --- reuse ------------------------------------------------------------------------------------


def python_of(spec: EnvironmentSpec) -> Path | None:
    """The Python of the environment if that is whole; starts nothing and takes about a millisecond."""
    for version in fitting_versions(spec):
        path = environment_path(spec, version)
        python = path / "bin" / "python"
        # The link is followed: an environment whose base Python was removed is not whole.
        if os.access(path / MARKER, os.R_OK) and os.access(python, os.X_OK):
            return python
    return None


def ensure(spec: EnvironmentSpec, say: Say = _to_stderr, bar: bool | None = None) -> Path:
    """The Python of the environment, which is made first if need be.

    `say` gets the lines for a person; `bar` decides for a progress bar on stderr instead of
    progress lines (None: a bar where stderr is a terminal).
    """
    python = python_of(spec)
    if python is not None:
        return python
    with _only_maker(spec, say) as lock:
        python = python_of(spec)
        if python is not None:
            say(f"environment '{spec.name}': made by the other process, reused")
            return python
        base, version = find_python(spec)
        path = environment_path(spec, version)
        making = Making(spec, base, version, path, _lock_digest(spec), lock)
        return make(making, say, sys.stderr.isatty() if bar is None else bar)


# --- one maker at a time ----------------------------------------------------------------------


@contextlib.contextmanager
def _only_maker(spec: EnvironmentSpec, say: Say) -> Iterator[int]:
    """Hold the lock file of an environment; wait, and say so, while another process holds it."""
    root = environments_root()
    path = root / f"{_key(spec)}.making"
    try:
        root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RequestError(
            "the folder of the environments cannot be written",
            where=str(root),
            why=f"{error.strerror}; a backend's environment is made there on first use",
            next_command="export STEPMARK_HOME=<a folder that this user can write>",
        ) from error
    try:
        _wait_for_lock(descriptor, path, spec, say)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)  # which unlocks it, unless a program we started lives on


def _wait_for_lock(descriptor: int, path: Path, spec: EnvironmentSpec, say: Say) -> None:
    noted = -WAIT_NOTE_SECONDS
    started = time.monotonic()
    while not _try_lock(descriptor, path):
        waited = time.monotonic() - started
        if waited - noted >= WAIT_NOTE_SECONDS:
            noted = waited
            holder = os.pread(descriptor, 20, 0).decode(errors="replace") or "unknown"
            say(f"environment '{spec.name}': process {holder} is making it; waiting ({waited:.0f} s)")
        time.sleep(0.1)


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise RequestError(
            "the environment's lock file cannot be locked",
            where=str(path),
            why=f"{error.strerror}; some network file systems have no locks",
            next_command="export STEPMARK_HOME=<a folder on a local disk>",
        ) from error
    return True
