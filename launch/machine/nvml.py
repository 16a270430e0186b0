"""Query the GPUs of this machine from NVML."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec
import pynvml

from benchmarks.machine import machine_gpus
from benchmarks.machine.machine_gpus import NO_DRIVER, VISIBLE, Busy, MachineGpu, MachineGpus
from launch.machine.this_machine import host_memory_bytes

WHY_NONE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NO_DRIVER,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "NVIDIA's driver is installed but not loaded: run sudo modprobe nvidia",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "NVIDIA's driver was updated, but the old one is still loaded: "
    "restart the machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user has no permission for NVIDIA's devices, /dev/nvidia*",
}

T = TypeVar("T")


def detect() -> MachineGpus:
    """Return the GPUs that a run may use."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return MachineGpus(
            why_none=WHY_NONE.get(error.value, f"NVML failed: {error}"),
            broken=error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        )
    try:
        return _detect()
    finally:
        pynvml.nvmlShutdown()


def _detect() -> MachineGpus:
    gpus, lost = [], []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            if query([0], pynvml.nvmlDeviceGetMigMode, handle)[0]:
                lost.append(f"GPU {index} is in MIG mode, and a run cannot use a part of a GPU")
            else:
                gpus.append(_gpu(handle, index))
        except pynvml.NVMLError as error:
            lost.append(f"GPU {index} does not answer ({error}): dmesg has the driver's log")
    in_bus_order = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    machine = machine_gpus.visible(gpus, os.environ.get(VISIBLE), in_bus_order)
    cuda = query(None, pynvml.nvmlSystemGetCudaDriverVersion)
    why_none = f"{machine.why_none}; {'; '.join(lost)}" if machine.why_none and lost else machine.why_none
    return msgspec.structs.replace(
        machine,
        driver=query(None, pynvml.nvmlSystemGetDriverVersion),
        cuda=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
        why_none=why_none,
        hidden="; ".join(words for words in (machine.hidden, *lost) if words),
    )


def _gpu(handle: Any, index: int) -> MachineGpu:
    memory = memory_of(handle)
    return MachineGpu(
        index=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        name=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=memory.total,
        pci=pynvml.nvmlDeviceGetPciInfo(handle).busId,
        busy=_busy(handle, memory.used),
    )


class Memory(NamedTuple):
    total: int
    used: int


def memory_of(handle: Any) -> Memory:
    """Return the memory of a GPU. The newer query does not count the driver's reserve as used.

    A GPU without its own memory (GB10) uses the memory of the host.
    """
    found = query(None, pynvml.nvmlDeviceGetMemoryInfo, handle, version=pynvml.nvmlMemory_v2)
    found = found or query(None, pynvml.nvmlDeviceGetMemoryInfo, handle)
    return Memory(found.total, found.used) if found else Memory(host_memory_bytes(), 0)


def _busy(handle: Any, used: int) -> tuple[Busy, ...]:
    """Return the programs that use a GPU. In a container, a program outside shows only the memory that it uses."""
    from benchmarks.preflight.gpus import IDLE_MIB

    processes: list[Any] = query([], pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    seen = tuple(
        Busy(
            pid=one.pid,
            name=str(query("unknown", pynvml.nvmlSystemGetProcessName, one.pid)),
            bytes=one.usedGpuMemory,
        )
        for one in processes
    )
    if seen or used <= IDLE_MIB * 2**20:
        return seen
    return (Busy(pid=None, name="a process that is not visible here", bytes=used),)


def query(otherwise: T, ask: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Return NVML's answer, or `otherwise` if the driver does not support the query."""
    try:
        return ask(*arguments, **named)
    except pynvml.NVMLError:
        return otherwise
