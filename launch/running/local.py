"""Run the phases of a plan, and the telemetry sampler, as processes of this machine, and end them.

On a cluster, the job script starts the same sampler.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.files import cannot_write, mark_write_failure, passing, retried
from benchmarks.job_record import ProcessEnd
from benchmarks.runs.runfolder import EXITS
from benchmarks.telemetry import samples
from benchmarks.values import Phase, Step
from launch.machine.processes import REPOSITORY, fill, inherited_environment, places

if TYPE_CHECKING:
    from launch.environments.runtime import Containers

POLL_SECONDS = 0.1
LOOK_SECONDS = 0.5  # between two reads of the steps: reading takes time from a CPU that trains
# Ranks wait forever for a lost rank. After the first failure, the other ranks get this long to end.
GRACE_SECONDS = 10.0

SAMPLER = REPOSITORY / "benchmarks" / "inside" / "node_sampler.py"
SAMPLER_LOG = "node_sampler.log"
TAIL_BYTES = 2**16  # longer than the line of a sample
END_SECONDS = 2.0  # how long the sampler may take to end; a driver that hangs must not block a run


def run_phase(
    phase: Phase,
    phase_dir: Path,
    python: Path,
    new_steps: Callable[[], list[Step]],
    on_steps: Callable[[list[Step]], None],
    containers: "Containers | None" = None,
    on_end: Callable[[], None] | None = None,
    broken: Callable[[], bool] = lambda: False,
) -> list[ProcessEnd]:
    """Start the tasks of a phase, pass their steps to `on_steps` while they train, and return how each task ended.

    `on_end` is called when training has ended. `broken` returns whether the machine has lost a device that the tasks
    need, which the tasks themselves may not notice.
    """
    phase_dir.mkdir(parents=True, exist_ok=True)
    tasks: list[subprocess.Popen[bytes]] = []
    interrupted = False

    def look() -> None:
        steps: list[Step] = []
        with passing():
            steps = new_steps()
        on_steps(steps)

    try:
        coordinator = f"127.0.0.1:{_free_port()}"
        for rank in range(phase.nodes * phase.tasks_per_node):
            tasks.append(_start(phase, phase_dir, python, rank, coordinator, containers))
        _watch(tasks, look, broken)
        if on_end is not None:
            on_end()
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted: stopping the workers", file=sys.stderr, flush=True)
    finally:
        killed = stop(tasks)  # end every worker, even after Ctrl-C or on a full disk
        if containers is not None:
            containers.end(phase_dir, len(tasks))
    own_code = containers.exit_code if containers is not None else int
    ended = [
        ProcessEnd(
            rank=rank, exit_code=None if rank in killed else own_code(task.returncode), interrupted=interrupted
        )
        for rank, task in enumerate(tasks)
    ]
    _write_exits(phase_dir, ended)
    on_steps(retried(new_steps)())
    return ended


def _start(
    phase: Phase, phase_dir: Path, python: Path, rank: int, coordinator: str, containers: "Containers | None"
) -> "subprocess.Popen[bytes]":
    where = places(python, phase_dir)
    command = [fill(word, where) for word in phase.command]
    own = {name: fill(value, where) for name, value in phase.environment.items()} | {"STEPMARK_RANK": str(rank)}
    if phase.nodes * phase.tasks_per_node > 1:
        own["STEPMARK_COORDINATOR"] = coordinator
    if containers is None:
        environment = inherited_environment() | own | {"STEPMARK_DIE_WITH_PARENT": "1"}
    else:
        command, environment = containers.task(phase, phase_dir, rank, command, own)
    with (phase_dir / f"rank-{rank}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=phase_dir,
            start_new_session=True,  # Ctrl-C reaches only the launcher, which then ends the workers
        )


def _watch(tasks: list["subprocess.Popen[bytes]"], look: Callable[[], None], broken: Callable[[], bool]) -> None:
    first_failure: float | None = None
    looked = 0.0
    while None in (codes := [task.poll() for task in tasks]):  # poll all tasks, because one may fail early
        if time.monotonic() - looked >= LOOK_SECONDS:
            look()
            looked = time.monotonic()
            if first_failure is None and broken():
                first_failure = looked
        if first_failure is None and any(codes):
            first_failure = time.monotonic()
        if first_failure is not None and time.monotonic() - first_failure > GRACE_SECONDS:
            return
        time.sleep(POLL_SECONDS)


def stop(tasks: list["subprocess.Popen[bytes]"]) -> set[int]:
    """End the tasks and their children: terminate, wait, then kill. Return the ranks that had to be killed."""
    deadline = time.monotonic() + GRACE_SECONDS
    asked = -1.0
    while None in [task.poll() for task in tasks] and time.monotonic() < deadline:
        if time.monotonic() - asked >= 1:  # repeat, because a program that is starting can miss the first signal
            for task in tasks:
                _signal_group(task, signal.SIGTERM)
            asked = time.monotonic()
        time.sleep(0.02)
    left = {rank for rank, task in enumerate(tasks) if task.poll() is None}
    for task in tasks:
        _signal_group(task, signal.SIGKILL)
        task.wait()
    return left


def _signal_group(task: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(task.pid, number)


def _write_exits(phase_dir: Path, ended: list[ProcessEnd]) -> None:
    lines = b"".join(msgspec.json.encode(process) + b"\n" for process in ended)
    try:
        (phase_dir / EXITS).write_bytes(lines)
    except OSError as error:
        mark_write_failure(phase_dir, error)
        why = "the recorded steps are kept"
        raise cannot_write(error, phase_dir / EXITS, why, phase_dir.parents[1]) from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- the sampler --------------------------------------------------------------------------------


@contextlib.contextmanager
def sample_while(folder: Path, interval: float = 1.0, gpus: Sequence[str] | None = None) -> Iterator[None]:
    """While the block runs, sample the machine into `folder`/node-NAME.jsonl. If that fails, only print a message.

    `gpus`: PCI bus ids of the GPUs that the run uses; None: all GPUs.
    """
    sampler = _start_sampler(folder, interval, gpus)
    try:
        yield
    finally:
        if sampler is not None:
            sampler.terminate()
            try:
                sampler.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                sampler.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):  # a process that hangs in a driver cannot end
                    sampler.wait(END_SECONDS)
            _say_trouble(folder / SAMPLER_LOG)


def _start_sampler(folder: Path, interval: float, gpus: Sequence[str] | None) -> "subprocess.Popen[bytes] | None":
    command = [sys.executable, "-P", str(SAMPLER), f"--out={folder}", f"--interval={interval}"]
    if gpus is not None:
        command.append(f"--gpus={','.join(gpus)}" if gpus else "--no_gpus")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / SAMPLER_LOG).open("wb") as log:
            return subprocess.Popen(
                command,
                env=inherited_environment() | {"STEPMARK_DIE_WITH_PARENT": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C ends the workers first
            )
    except OSError as error:
        print(f"stepmark: cannot sample this machine during the run: {error}", file=sys.stderr)
        return None


def lost_gpu(folder: Path) -> bool:
    """Return whether the last sample contains a GPU that no longer answers."""
    for path in folder.glob(samples.NODE_FILES):
        with contextlib.suppress(OSError), path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
            last = stream.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
            return samples.has_lost_gpu(last)
    return False


def _say_trouble(log: Path) -> None:
    """Print the last line of the sampler's log. The log is empty unless the sampler has failed."""
    with contextlib.suppress(OSError):
        text = log.read_text(errors="replace").strip()
        if text:
            print(text.splitlines()[-1], file=sys.stderr)
        else:
            log.unlink()
