"""The programs that make an environment (uv, the import check): how one is run and logged, how any ends."""

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from benchmarks.backend import EnvironmentSpec, LockFile
from benchmarks.errors import RunError
from benchmarks.secret_rules import hidden
from launch.environments.uv_settings import uv, variables

END_SECONDS = 5.0  # what a program gets between being asked to end and being killed
ASKED_FIRST = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
RUN_AGAIN = "run the same command again"
CAUSE = re.compile(r"(?:error| +cause): (.*)")  # uv gives a failure's causes a line each


@dataclass(frozen=True)
class Making:
    """One environment in the making."""

    spec: EnvironmentSpec
    lock_file: LockFile  # says what is installed
    lock_sha256: str
    base: Path  # the Python it is made with
    version: tuple[int, int]
    path: Path
    pip: dict[str, str]  # pip's settings on this machine, which hold for uv
    lock: int  # descriptor of the lock that says who may write here; its programs hold it too

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    def uv_pip(self, command: str) -> list[str]:
        return uv("pip", command, "--python", str(self.python))

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def log_file(self) -> Path:
        return self.path.with_name(self.path.name + ".log")


class Ended(NamedTuple):
    """How a program ended, and all it said."""

    exit_code: int
    lines: list[str]


def run(
    making: Making,
    command: list[str],
    on_line: Callable[[str], None] = lambda _text: None,
    on_tick: Callable[[], None] = lambda: None,
) -> Ended:
    """Run one program, its output into the log file; `on_tick` is called some times a second meanwhile."""
    lines: list[str] = []
    with making.log_file.open("a", encoding="utf-8") as log:

        def take(raw: str) -> None:
            text = hidden(raw)
            lines.append(text.rstrip("\n"))
            on_line(text)
            # On a full disk uv's words must still be read: they are what says so.
            with contextlib.suppress(OSError):
                log.write(text)

        exit_code = _run(making, command, take, on_tick)
    return Ended(exit_code, lines)


def check(making: Making, doing: str, ended: Ended) -> None:
    if ended.exit_code != 0:
        raise failure(making, doing, ended.lines)


def failure(making: Making, doing: str, lines: list[str]) -> RunError:
    """What is said of a program that failed in a way not known beforehand."""
    causes = [match[1] for match in map(CAUSE.match, lines) if match] or [line.strip() for line in lines][-1:]
    return RunError(
        f"environment '{making.spec.name}': {doing} failed",
        where=f"log: {making.log_file}",
        why="; ".join(causes)[:300] or "the program ended without a word",
        next_command=f"read the log; the environment is made again when you {RUN_AGAIN}",
    )


def _run(making: Making, command: list[str], take: Callable[[str], None], on_tick: Callable[[], None]) -> int:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=variables(making.pip),
        cwd=making.path.parent,
        start_new_session=True,  # a group of its own, which can be ended as a whole
        # The program holds the lock too: if this process is killed, nobody else may
        # write into the environment before the program has ended.
        pass_fds=(making.lock,),
    )
    assert process.stdout is not None
    reader = threading.Thread(target=_pump, args=(process.stdout, take), daemon=True)
    reader.start()
    try:
        while process.poll() is None:
            reader.join(0.2)
            on_tick()
            if not reader.is_alive():
                process.wait()
        reader.join(END_SECONDS)  # a child that outlives the program may keep its output open
        on_tick()
    except BaseException:
        end_group(process)
        reader.join(END_SECONDS)
        raise
    return process.returncode


def _pump(stream: IO[str], take: Callable[[str], None]) -> None:
    for line in stream:
        take(line)


def end_group(process: subprocess.Popen[str], signals: tuple[signal.Signals, ...] = ASKED_FIRST) -> None:
    """End a program that leads its own group, and its children."""
    for number in signals:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)


@contextlib.contextmanager
def signals_as_exit() -> Iterator[None]:
    """Let a polite kill or a closed terminal end the programs too, as Ctrl-C does."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    # One that is handled otherwise stays so: nohup ignores a closed terminal.
    ours = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
