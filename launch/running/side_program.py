"""Run a backend's SideProgram in its environment on this machine, and return its report."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks import files
from benchmarks.backend import Backend, SideProgram
from benchmarks.errors import RunError
from benchmarks.machine import refusals
from benchmarks.machine.machine_gpus import VISIBLE, MachineGpu
from benchmarks.values import Phase
from launch.environments import venvs
from launch.machine import machine_gpus, processes
from launch.running import local

REPORT = "report.json"
LINES_SHOWN = 5

T = TypeVar("T")


def run_side_program(
    backend: Backend,
    engine: str,
    program: SideProgram,
    folder: Path,
    report: type[T],
    gpus: Sequence[MachineGpu] = (),
    look: Callable[[], None] = lambda: None,
) -> T:
    """Return the report of the program. Raise RunError with its output if it fails or writes no report.

    The program sees only `gpus`. A program for a CPU sees no GPU, because a CUDA build would use a GPU. `look` is
    called twice a second while the program runs.
    """
    python = python_for(backend, engine, program, gpus)
    phase = Phase(
        name=folder.name,
        command=program.command,
        environment=program.environment | _shown(program, gpus),
        nodes=1,
        tasks_per_node=1,
        devices_per_task=1,
        writes_steps=False,
    )
    (folder / REPORT).unlink(missing_ok=True)
    with processes.interrupted_once():
        ended = local.run_phase(phase, folder, python, list, lambda _: look())
    if any(process.interrupted for process in ended):
        raise KeyboardInterrupt
    log = folder / "rank-0.log"
    if any(process.exit_code != 0 for process in ended):
        raise _broken(backend, f"exit code {ended[0].exit_code}", log)
    try:
        return files.read_json(folder / REPORT, report)
    except (OSError, ValueError) as error:
        raise _broken(backend, f"its report cannot be read ({error})", log) from None


def python_for(backend: Backend, engine: str, program: SideProgram, gpus: Sequence[MachineGpu] = ()) -> Path:
    """Return the Python of the engine's environment; create it if missing. Refuse a driver that is too old."""
    spec = backend.environment(engine, program.platform)
    too_old = refusals.old_driver(spec, machine_gpus.detect()) if gpus else None
    if too_old is not None:
        raise too_old
    return venvs.ensure(spec)


def _shown(program: SideProgram, gpus: Sequence[MachineGpu]) -> dict[str, str]:
    if not gpus and program.platform != "cpu":
        return {}
    return {VISIBLE: ",".join(gpu.uuid for gpu in gpus)}


def _broken(backend: Backend, why: str, log: Path) -> RunError:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    place = shlex.quote(str(log))
    return RunError(
        f"the program of {backend.title} failed: {why}",
        where=str(log),
        why="\n".join(lines[-LINES_SHOWN:]) or "no output",
        next_command=f"tail -n 40 {place}; python launch/doctor.py logs {place}",
    )
