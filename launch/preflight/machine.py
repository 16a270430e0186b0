"""Check this machine for everything that a run on the site `local` needs."""

import os
import platform
import runpy
from collections import Counter
from pathlib import Path

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.machine import refusals
from benchmarks.machine.machine_gpus import shown
from benchmarks.preflight.gpus import gpu_rows, problems_of
from benchmarks.preflight.report import WORDS
from benchmarks.preflight.values import Command, Status
from benchmarks.text import aligned
from benchmarks.values import Value
from launch.environments import container_programs as programs
from launch.environments import venvs
from launch.environments.container_programs import Program
from launch.environments.wanted import specs
from launch.machine import machine_gpus
from launch.machine.this_machine import host_memory_bytes
from launch.terminal.places import configs

NODE_CHECK = Path(__file__).resolve().parents[1] / "inside/node_check.py"


class MachineCheck(Value, frozen=True, kw_only=False):
    check: str
    status: Status
    text: str


def report() -> tuple[list[MachineCheck], str, int]:
    """Return the report as data and text, and the exit code."""
    memory = f"{host_memory_bytes() / 1e9:.0f} GB, {os.cpu_count()} cores"
    containers = [_container(name, known) for name, known in programs.installed_programs()]
    no_program = MachineCheck("containers", "not_checked", f"no {' or '.join(programs.NAMES)} on PATH")
    checks = [
        MachineCheck("launcher", "ok", f"Python {platform.python_version()}"),
        MachineCheck("memory", "ok", memory),
        *_gpus(),
        *_environments(),
        *(containers or [no_program]),
    ]
    code = EXIT_INVALID if any(check.status == "failed" for check in checks) else EXIT_VALID
    rows = [
        (check.check, f"{WORDS[check.status]}: {check.text}" if check.text else WORDS[check.status])
        for check in checks
    ]
    counts = Counter(WORDS[check.status] for check in checks)
    verdict = ", ".join(f"{count} {word}" for word, count in counts.items())
    text = "\n".join([f"this machine (site local): {verdict}", *aligned(rows)])
    return checks, text, code


def _gpus() -> list[MachineCheck]:
    """Return the checks of the GPUs that a run may use, and of each GPU."""
    machine = machine_gpus.detect()
    if not machine.gpus:
        return [MachineCheck("GPUs", "failed" if machine.broken else "not_checked", machine.why_none)]
    cuda = f", CUDA up to {machine.cuda[0]}.{machine.cuda[1]}" if machine.cuda else ""
    hidden = f"; {machine.hidden}" if machine.hidden else ""
    found = [MachineCheck("GPUs", "ok", f"{shown(machine.gpus)}, driver {machine.driver}{cuda}{hidden}")]
    for row in machine_gpus.rows(configs()):
        if not row.peaks:
            found.append(MachineCheck(f"MFU on {row.title}", "warning", "null: configs/hardware does not list it"))
    # Run the same commands as on the nodes of a cluster, for all GPUs of the machine.
    asked = runpy.run_path(str(NODE_CHECK))["commands"]({"gpus": True, "container": False})
    commands = {name: Command(**answer) for name, answer in asked.items()}
    rows = gpu_rows(commands)
    if not rows:
        found.append(MachineCheck("nvidia-smi", "failed", commands["gpus"].output.strip()))
    for gpu in rows:
        memory = f"{gpu.get('memory.used')} of {gpu.get('memory.total')} MiB in use"
        clock = f"{gpu.get('clocks.current.sm')} of {gpu.get('clocks.max.sm')} MHz"
        text = f"{gpu.get('name')}, {memory}, {gpu.get('temperature.gpu')} C, {clock}"
        found.append(MachineCheck(f"GPU {gpu['index']}", "ok", text))
    return found + [MachineCheck(name, *(problem or ("ok", ""))) for name, problem in problems_of(commands).items()]


def _environments() -> list[MachineCheck]:
    """Return the checks of the environments for this machine's GPUs, or for its CPU."""
    device = "cuda" if machine_gpus.detect().gpus else "cpu"
    found = {spec.name: spec for spec in specs(configs(), (device,)).values()}
    return [_environment(spec) for spec in found.values() if spec.locks]


def _environment(spec: EnvironmentSpec) -> MachineCheck:
    check, machine = f"environment {spec.name}", machine_gpus.detect()
    too_old = refusals.old_driver(spec, machine) if machine.gpus else None
    if too_old:
        return MachineCheck(check, "failed", f"{too_old.what}; next: {too_old.next_command}")
    python = venvs.python_of(spec)
    needed = refusals.minimum_driver(spec.locks[0].cuda)
    cuda = f"; CUDA {refusals.cuda_text(spec.locks[0].cuda)}, which needs driver {needed} or newer" if needed else ""
    text = str(python or "not created yet; the first run creates it") + cuda
    return MachineCheck(check, "ok" if python else "not_checked", text)


def _container(name: str, known: Program | RequestError) -> MachineCheck:
    """Return the check of a container program, which shows whether the program could start a run."""
    try:
        if isinstance(known, RequestError):
            raise known
        if machine_gpus.detect().gpus:
            programs.refuse_without_gpus(known)
    except RequestError as error:
        text = f"{error.what}: {error.why}; next: {error.next_command}"
        return MachineCheck(f"containers: {name}", "warning", text)
    gpus = ", gives containers NVIDIA's GPUs" if machine_gpus.detect().gpus else ""
    return MachineCheck(f"containers: {name}", "ok", f"{known.version}{gpus}")
