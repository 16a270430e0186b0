"""The doctor for this machine: what a run on the site `local` needs, and what a cluster is asked with."""

import os
import shutil

from benchmarks.backend import EnvironmentSpec, backends
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.machine import refusals
from benchmarks.preflight.gpus import judged
from benchmarks.preflight.report import WORDS
from benchmarks.preflight.values import Status
from benchmarks.rendering.columns import aligned
from benchmarks.values import Value, json_text
from launch.command_line.places import configs, stepmark_home
from launch.containers import programs
from launch.containers.programs import Program
from launch.environments import venvs
from launch.preflight import gpus_here
from launch.running import machine_gpus
from launch.running.this_machine import host_memory_bytes

SLURM_COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel", "sacct")
FREE_BYTES = 20 * 10**9  # the largest environment with its downloads, as the lock files state it


class MachineCheck(Value, frozen=True):
    check: str
    status: Status
    text: str


def report(as_json: bool) -> tuple[str, int]:
    """The text and the exit code."""
    checks = [_launcher(), _memory(), *_gpus(), _disk(), *_environments(), *_containers(), _slurm()]
    code = EXIT_INVALID if any(check.status == "failed" for check in checks) else EXIT_VALID
    if as_json:
        return json_text(checks).rstrip(), code
    rows = [
        (check.check, f"{WORDS[check.status]}: {check.text}" if check.text else WORDS[check.status])
        for check in checks
    ]
    return "\n".join(["this machine, as the site local", *aligned(rows)]), code


def _launcher() -> MachineCheck:
    import platform

    # A launcher that lacks a package of its own does not come as far as this: launch/_script.py says so.
    return MachineCheck(check="launcher", status="ok", text=f"Python {platform.python_version()}")


def _memory() -> MachineCheck:
    return MachineCheck(
        check="memory", status="ok", text=f"{host_memory_bytes() / 1e9:.0f} GB, {os.cpu_count()} cores"
    )


def _gpus() -> list[MachineCheck]:
    """The GPUs that a run may use, each GPU that is there, and what is wrong with them."""
    machine = machine_gpus.found()
    asked = gpus_here.ask()
    found: Status = "ok" if machine.gpus else "failed" if machine.broken else "not_checked"
    unknown = [row.title for row in machine_gpus.rows(configs()) if not row.peaks]
    return [
        MachineCheck(check="GPUs", status=found, text=gpus_here.machine_text(machine)),
        *(
            MachineCheck(check=f"MFU on {name}", status="warning", text="null: no file of configs/hardware names it")
            for name in unknown
        ),
        *(MachineCheck(check=f"GPU {gpu.index}", status=gpu.status, text=gpu.text) for gpu in asked.gpus),
        *(MachineCheck(check=name, status=status, text=text) for name, status, text in judged(asked)),
    ]


def _disk() -> MachineCheck:
    home = stepmark_home()
    there = next(path for path in (home, *home.parents) if path.exists())
    free = shutil.disk_usage(there).free
    status: Status = "ok" if free >= FREE_BYTES else "warning"
    text = f"{free / 1e9:.0f} GB free in {home}, {FREE_BYTES / 1e9:.0f} wanted for environments"
    return MachineCheck(check="disk", status=status, text=text)


def _environments() -> list[MachineCheck]:
    """Those for this machine's GPUs, else for its CPU."""
    platform = "cuda" if machine_gpus.found().gpus else "cpu"
    found = {}
    for backend in backends().values():
        for engine in backend.engines:
            spec = backend.environment(engine, platform)
            found[spec.name] = spec
    return [_environment(spec) for spec in found.values() if spec.locks]


def _environment(spec: EnvironmentSpec) -> MachineCheck:
    check, machine = f"environment {spec.name}", machine_gpus.found()
    too_old = refusals.old_driver(spec, machine) if machine.gpus else None
    if too_old:
        return MachineCheck(check=check, status="failed", text=f"{too_old.what}; next: {too_old.next_command}")
    python = venvs.python_of(spec)
    needed = refusals.minimum_driver(spec.locks[0].cuda)
    cuda = f"; CUDA {refusals.cuda_text(spec.locks[0].cuda)}, which takes driver {needed} or newer" if needed else ""
    text = str(python or "not made yet: the first run makes it") + cuda
    return MachineCheck(check=check, status="ok" if python else "not_checked", text=text)


def _containers() -> list[MachineCheck]:
    """The container programs, and whether each could start a run."""
    found = [_container(name, known) for name, known in programs.here()]
    none = f"none of {', '.join(programs.NAMES)} is on PATH"
    return found or [MachineCheck(check="containers", status="not_checked", text=none)]


def _container(name: str, known: Program | RequestError) -> MachineCheck:
    try:
        if isinstance(known, RequestError):
            raise known
        if machine_gpus.found().gpus:
            programs.refuse_without_gpus(known)
    except RequestError as error:
        return MachineCheck(
            check=f"containers: {name}",
            status="warning",
            text=f"{error.what}: {error.why}; next: {error.next_command}",
        )
    gpus = ", gives containers NVIDIA's GPUs" if machine_gpus.found().gpus else ""
    return MachineCheck(check=f"containers: {name}", status="ok", text=f"{known.version}{gpus}")


def _slurm() -> MachineCheck:
    missing = [name for name in SLURM_COMMANDS if shutil.which(name) is None]
    if len(missing) == len(SLURM_COMMANDS):
        return MachineCheck(check="Slurm", status="not_checked", text="none of its commands is on PATH")
    text = f"{', '.join(missing)} not on PATH" if missing else "its commands are on PATH"
    return MachineCheck(check="Slurm", status="warning" if missing else "ok", text=text)
