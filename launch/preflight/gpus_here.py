"""Asks NVML how this machine's GPUs are, in the words of nvidia-smi, which benchmarks/preflight/gpus.py judges."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import pynvml

from benchmarks.machine.machine_gpus import MachineGpus, shown
from benchmarks.preflight.values import Command, Status
from benchmarks.values import Value
from launch.running.nvml import memory_of, said

LINKS = pynvml.NVML_NVLINK_MAX_LINKS
UNKNOWN = "[N/A]"


class Seen(Value, frozen=True):
    """A GPU in a line."""

    index: int
    status: Status
    text: str


class AskedHere(Value, frozen=True):
    """All GPUs of this machine, whoever may use them."""

    gpus: list[Seen]
    commands: Mapping[str, Command]


def machine_text(machine: MachineGpus) -> str:
    if not machine.gpus:
        return machine.why_none
    cuda = f", CUDA up to {machine.cuda[0]}.{machine.cuda[1]}" if machine.cuda else ""
    hidden = f"; {machine.hidden}" if machine.hidden else ""
    return f"{shown(machine.gpus)}, driver {machine.driver}{cuda}{hidden}"


def ask() -> AskedHere:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # machine_text says why
        return AskedHere(gpus=[], commands={})
    try:
        return _ask()
    finally:
        pynvml.nvmlShutdown()


def _ask() -> AskedHere:
    gpus: list[Seen] = []
    rows: list[dict[str, object]] = []
    remapped: list[dict[str, object]] = []
    processes: list[dict[str, object]] = []
    links: list[str] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            row = _row(handle, index)
        except pynvml.NVMLError as error:
            gpus.append(Seen(index=index, status="failed", text=f"it answers nothing: {error}"))
            continue
        states = _links(handle)
        gpus.append(Seen(index=index, status="ok", text=_line(handle, row, states)))
        rows.append(row)
        remapped += _remapped(handle, row)
        processes += _processes(handle)
        links += [f"GPU {index}:", *(f"  Link {at}: {'on' if on else '<inactive>'}" for at, on in enumerate(states))]
    said_by = {"gpus": _csv(rows), "remapped_rows": _csv(remapped), "processes": _csv(processes)}
    said_by["nvlink"] = "\n".join(links)
    return AskedHere(gpus=gpus, commands={name: Command(0, text) for name, text in said_by.items()})


def _row(handle: Any, index: int) -> dict[str, object]:
    reasons = said(None, pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    utilization = said(None, pynvml.nvmlDeviceGetUtilizationRates, handle)
    uncorrected, volatile = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    return {
        "index": index,
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "name": pynvml.nvmlDeviceGetName(handle),
        "memory.used": memory_of(handle).used // 2**20,
        "utilization.gpu": UNKNOWN if utilization is None else utilization.gpu,
        "ecc.errors.uncorrected.volatile.total": said(
            UNKNOWN, pynvml.nvmlDeviceGetTotalEccErrors, handle, uncorrected, volatile
        ),
        "clocks_event_reasons.active": UNKNOWN if reasons is None else hex(reasons),
        "persistence_mode": "Enabled" if said(0, pynvml.nvmlDeviceGetPersistenceMode, handle) else "Disabled",
    }


def _line(handle: Any, row: Mapping[str, object], links: Sequence[bool]) -> str:
    memory = memory_of(handle)
    watts = said(None, pynvml.nvmlDeviceGetPowerUsage, handle)
    limit = said(None, pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    clock = said(None, pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM)
    most = said(None, pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM)
    celsius = said(None, pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    mig = said([0], pynvml.nvmlDeviceGetMigMode, handle)[0]
    parts = [
        str(row["name"]),
        f"{memory.used / 1e9:.1f} of {memory.total / 1e9:.1f} GB in use",
        "" if celsius is None else f"{celsius} C",
        "" if watts is None or limit is None else f"{watts / 1000:.0f} of {limit / 1000:.0f} W",
        "" if clock is None or most is None else f"{clock} of {most} MHz",
        f"{sum(links)} of {len(links)} NVLinks active" if links else "no NVLink",
        "MIG mode" if mig else "",
    ]
    return ", ".join(part for part in parts if part)


def _links(handle: Any) -> list[bool]:
    states = [said(None, pynvml.nvmlDeviceGetNvLinkState, handle, link) for link in range(LINKS)]
    return [bool(state) for state in states if state is not None]


def _remapped(handle: Any, row: Mapping[str, object]) -> list[dict[str, object]]:
    found = said(None, pynvml.nvmlDeviceGetRemappedRows, handle)
    if found is None:
        return []
    names = ("remapped_rows.pending", "remapped_rows.failure")
    return [
        {
            "gpu_uuid": row["uuid"],
            **{name: "Yes" if bad else "No" for name, bad in zip(names, found[2:], strict=True)},
        }
    ]


def _processes(handle: Any) -> list[dict[str, object]]:
    running: list[Any] = said([], pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    return [
        {"pid": one.pid, "process_name": said("unknown", pynvml.nvmlSystemGetProcessName, one.pid)} for one in running
    ]


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()
