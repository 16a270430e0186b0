"""Make one environment with uv and write its marker last. If that fails, remove the environment.

uv installs only what the lock file pins, and verifies every hash. It builds only the packages without a wheel, which
the lock file names with `--no-binary`, and builds them with the setuptools of the same lock file.
The caller holds the environment's lock (venvs.py).
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.backend import EnvironmentSpec, LockFile
from benchmarks.errors import RequestError, RunError
from benchmarks.secret_rules import hidden
from launch.environments import uv
from launch.machine.processes import interrupted_once
from launch.terminal.progress import Show, say, shown

END_SECONDS = 5.0  # how long a program may take to end after each signal
ASKED_FIRST = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
NOT_OFFERED = "No solution found"
NO_ANSWER = "error sending request|error decoding response body|network was disabled|401 |403 |407 "
CAUSE = re.compile(r"(?:error| +cause): (.*)")  # uv prints each cause of a failure on its own line
BUILT = re.compile(r"^--no-binary ", re.MULTILINE)
PIN = re.compile(r"^([A-Za-z0-9._\-\[\]]+)==(?!=)", re.MULTILINE)
BUILDER = re.compile(r"^setuptools===(?:.*\\\n)*.*\n", re.MULTILINE)  # the pin of setuptools and its hashes


@dataclass(frozen=True)
class Making:
    """The inputs and paths of one environment that is being created."""

    spec: EnvironmentSpec
    lock_file: LockFile  # pins the packages to install
    lock_sha256: str
    base: Path  # the Python that creates the environment
    version: uv.Version
    path: Path
    marker: Path  # the file that only a complete environment has
    pip: dict[str, str]  # pip's settings on this machine, which Stepmark also passes to uv
    lock: int  # descriptor of the lock for writing to the environment; uv and the other programs inherit it

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def log_file(self) -> Path:
        return self.path.with_name(self.path.name + ".log")

    def uv_pip(self, command: str) -> list[str]:
        return uv.command("pip", command, "--python", str(self.python))


def make(making: Making) -> Path | None:
    """Make an environment and return its Python; None if no index offers the package that the lock file needs."""
    name, path, size_gb = making.spec.name, making.path, making.lock_file.size_gb
    version = ".".join(map(str, making.version))
    if path.exists():
        say(f"environment '{name}': removing an incomplete environment")
    _remove(making)
    _refuse_without_room(making)
    say(
        f"environment '{name}': making it from {making.lock_file.path.name} with Python {version}, "
        f"once, about {size_gb:g} GB, in {path}"
    )
    started, whole = time.monotonic(), False
    try:
        with interrupted_once(), shown(f"environment '{name}': ") as show:
            whole = _fill(making, show)
        if whole:
            with contextlib.suppress(FileNotFoundError):  # uv's lock, which other users must not write
                (path / ".lock").chmod(0o644)
            seconds = round(time.monotonic() - started, 1)
            facts = {"name": name, "lock_sha256": making.lock_sha256, "seconds": seconds}
            half_written = making.marker.with_name(making.marker.name + ".part")
            half_written.write_text(json.dumps(facts) + "\n")
            half_written.replace(making.marker)
    finally:
        if not whole:
            _remove(making)
    if not whole:
        return None
    say(f"environment '{name}': ready after {time.monotonic() - started:.0f} s")
    return making.python


def _fill(making: Making, show: Show) -> bool:
    making.log_file.write_text("")
    show("creating")
    _succeed(making, "creating it", uv.command("venv", "--python", str(making.base), str(making.path)))
    if not _is_offered(making, show):
        return False
    install(making, show)
    show("checking")
    if making.lock_file.complete:
        _succeed(making, "`uv pip check`", making.uv_pip("check"))
    module, variables = making.spec.import_check, making.spec.import_variables
    import_it = f"import importlib, os; os.environ.update({variables!r}); importlib.import_module({module!r})"
    _succeed(making, f"importing {module}", [str(making.python), "-I", "-c", import_it])
    return True


def _remove(making: Making) -> None:
    """Remove the environment, the marker first, so that a partly removed environment never counts as complete."""
    making.marker.unlink(missing_ok=True)
    shutil.rmtree(making.path, ignore_errors=True)


def _refuse_without_room(making: Making) -> None:
    size_gb, place = making.lock_file.size_gb, making.path.parent
    free_gb = shutil.disk_usage(place).free / 1e9
    if free_gb < size_gb:
        raise RequestError(
            f"the disk has too little space for the environment '{making.spec.name}'",
            where=str(place),
            why=f"it needs about {size_gb:g} GB, and {free_gb:.1f} GB are free; STEPMARK_HOME can name a larger disk",
            next_command=f"df -h {shlex.quote(str(place))}",
        )


# --- installing -------------------------------------------------------------------------------


def _is_offered(making: Making, show: Show) -> bool:
    """Return whether uv finds the package that the lock file needs in an index of this machine."""
    wanted = making.lock_file.offered
    if not wanted:
        return True
    show(f"looking for {wanted} in the package indexes")
    ended = run(making, [*_install(making), "--dry-run", wanted])
    if ended.exit_code == 0:
        return True
    # Without a network the answer is unknown. Do not treat that as "not offered", which would select a larger build.
    text = "\n".join(ended.lines)
    if NOT_OFFERED not in text or re.search(NO_ANSWER, text):
        raise _failure(making, "uv", ended.lines)
    return False


def install(making: Making, show: Show) -> None:
    lock_text = making.lock_file.path.read_text()
    # Pin exact versions with ===: for uv, 2.13.0+cpu satisfies torch==2.13.0 if an index has it.
    pins = PIN.sub(r"\1===", lock_text)
    if re.search(BUILT, lock_text):
        _install_pins(making, "builder.lock", "".join(re.findall(BUILDER, pins)), lambda _line: None)
    downloads = downloaded = 0

    def follow(line: str) -> None:
        """Show the progress in uv's output, which names each download above 1 MB when it starts and ends."""
        nonlocal downloads, downloaded
        if line.startswith("Prepared "):
            show("installing")
        else:
            downloads += line.startswith("Downloading ")
            downloaded += line.startswith(" Downloaded ")
            if downloads:  # packages in uv's cache are not downloaded
                show("downloading", downloaded, downloads, f"{downloaded} of {downloads}")

    _install_pins(making, "pins.lock", pins, follow)


def _install_pins(making: Making, name: str, pins: str, on_line: Callable[[str], None]) -> None:
    file = making.path / name
    file.write_text(pins)
    _succeed(making, "uv", [*_install(making), "--require-hashes", "--requirements", str(file)], on_line)


def _install(making: Making) -> list[str]:
    wheels = ["--no-deps", "--only-binary", ":all:", "--no-build-isolation"]
    return [*making.uv_pip("install"), *wheels, *uv.without_index(making.pip)]


# --- failures ---------------------------------------------------------------------------------


def _succeed(
    making: Making, doing: str, command: list[str], on_line: Callable[[str], None] = lambda _line: None
) -> None:
    """Run one program. If it fails, raise RunError with the causes from its output."""
    ended = run(making, command, on_line)
    if ended.exit_code != 0:
        raise _failure(making, doing, ended.lines)


def _failure(making: Making, doing: str, lines: list[str]) -> RunError:
    causes = [match[1] for match in map(CAUSE.match, lines) if match] or [line.strip() for line in lines][-1:]
    return RunError(
        f"environment '{making.spec.name}': {doing} failed",
        where=str(making.log_file),
        why="; ".join(causes)[:300] or "the program had no output",
        next_command=f"tail -n 40 {shlex.quote(str(making.log_file))}; pip config list",
    )


# --- programs ---------------------------------------------------------------------------------


class ProgramResult(NamedTuple):
    exit_code: int
    lines: list[str]


def run(making: Making, command: list[str], on_line: Callable[[str], None] = lambda _line: None) -> ProgramResult:
    """Run one program and append its output to the log file."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=uv.variables(making.pip),
        cwd="/",  # uv obeys uv.toml in the folders above, which another user may have made
        start_new_session=True,  # a separate process group, which can be ended as a whole
        umask=0o022,  # a group that may write elsewhere must not write to programs that this user runs
        # The program also holds the lock: if this process is killed, no other process may write
        # to the environment until the program has ended.
        pass_fds=(making.lock,),
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        with making.log_file.open("a", encoding="utf-8") as log:
            for raw in process.stdout:
                line = hidden(raw)
                lines.append(line.rstrip("\n"))
                on_line(line)
                # On a full disk, keep reading uv's output, because it reports the full disk.
                with contextlib.suppress(OSError):
                    log.write(line)
                    log.flush()
        return ProgramResult(process.wait(), lines)
    except BaseException:
        for number in ASKED_FIRST:  # signal the program's process group, which includes its children
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
        raise
