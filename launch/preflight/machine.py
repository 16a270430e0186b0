"""The doctor for this machine: what a run on the site `local` needs, and what a cluster is asked with."""

import os
import shutil

from benchmarks.backend import backends
from benchmarks.errors import EXIT_INVALID, EXIT_VALID
from benchmarks.preflight.gpus import judged
from benchmarks.preflight.report import WORDS
from benchmarks.preflight.values import Status
from benchmarks.report import aligned
from benchmarks.values import Value, json_text
from launch import environments, machine_gpus
from launch.local import host_memory_bytes
from launch.places import stepmark_home
from launch.preflight import gpus_here

SLURM_COMMANDS = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel", "sacct")
FREE_BYTES = 20 * 10**9  # the largest environment with its downloads, as the lock files state it


class MachineCheck(Value, frozen=True):
    check: str
    status: Status
    text: str


def report(as_json: bool) -> tuple[str, int]:
    """The text and the exit code."""
    checks = [_launcher(), _memory(), *_gpus(), _disk(), *_environments(), _slurm()]
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
    found: Status = "ok" if machine.gpus else "not_checked"
    return [
        MachineCheck(check="GPUs", status=found, text=gpus_here.machine_text(machine)),
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
    found = {}
    for backend in backends().values():
        for engine in backend.engines:
            spec = backend.environment(engine)
            found[spec.name] = spec
    return [
        MachineCheck(
            check=f"environment {name}",
            status="ok" if environments.python_of(spec) else "not_checked",
            text=str(environments.python_of(spec) or "not made yet: the first run makes it"),
        )
        for name, spec in found.items()
        if spec.locks
    ]


def _slurm() -> MachineCheck:
    missing = [name for name in SLURM_COMMANDS if shutil.which(name) is None]
    if len(missing) == len(SLURM_COMMANDS):
        return MachineCheck(check="Slurm", status="not_checked", text="none of its commands is on PATH")
    text = f"{', '.join(missing)} not on PATH" if missing else "its commands are on PATH"
    return MachineCheck(check="Slurm", status="warning" if missing else "ok", text=text)
