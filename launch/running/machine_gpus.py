"""Asks NVML what GPUs this machine has. What follows from it is in benchmarks/machine/machine_gpus.py."""

import datetime
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec
import pynvml

from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.machine import machine_gpus
from benchmarks.machine.machine_gpus import VISIBLE, Busy, MachineGpu, MachineGpus
from benchmarks.request.resolve import NoLayoutError, Request, choose_recipe, gpus_wanted, like, scales
from benchmarks.values import Benchmark, Hardware
from launch.running.local import host_memory_bytes

NO_DRIVER = (
    "there is no NVIDIA driver: libnvidia-ml.so.1 was not found "
    "(a container must be started with its GPUs, as docker run --gpus=all does)"
)
WHY_NONE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NO_DRIVER,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "NVIDIA's driver is installed, but not loaded: sudo modprobe nvidia",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "NVIDIA's driver was changed, and the old one is still loaded: "
    "restart the machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not open NVIDIA's devices, /dev/nvidia*",
}

T = TypeVar("T")


@functools.cache
def found() -> MachineGpus:
    """What a run may use; asked once."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return MachineGpus(
            why_none=WHY_NONE.get(error.value, f"NVML cannot be asked: {error}"),
            broken=error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        )
    try:
        return _found()
    finally:
        pynvml.nvmlShutdown()


def _found() -> MachineGpus:
    gpus, slices, lost = [], {}, []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(_gpu(handle, index))
            if said([0], pynvml.nvmlDeviceGetMigMode, handle)[0]:
                slices[gpus[-1].uuid] = [_gpu(part, index, gpus[-1]) for part in _parts(handle)]
        except pynvml.NVMLError as error:
            lost.append(f"GPU {index} answers nothing ({error}): its driver's log (dmesg) says why")
    machine = machine_gpus.visible(
        gpus, slices, os.environ.get(VISIBLE), os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    )
    cuda = said(None, pynvml.nvmlSystemGetCudaDriverVersion)
    why_none = f"{machine.why_none}; {'; '.join(lost)}" if machine.why_none and lost else machine.why_none
    return msgspec.structs.replace(
        machine,
        driver=said(None, pynvml.nvmlSystemGetDriverVersion),
        cuda=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
        why_none=why_none,
        hidden="; ".join(words for words in (machine.hidden, *lost) if words),
    )


def _gpu(handle: Any, index: int, whole: MachineGpu | None = None) -> MachineGpu:
    memory = memory_of(handle)
    return MachineGpu(
        index=index,
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        name=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=memory.total,
        pci=whole.pci if whole else pynvml.nvmlDeviceGetPciInfo(handle).busId,
        mig=whole is not None,
        busy=_busy(handle, memory.used),
    )


class Memory(NamedTuple):
    total: int
    used: int


def memory_of(handle: Any) -> Memory:
    """In the older of NVML's answers, what the driver itself reserves is in use. A GPU without memory of its own
    (GB10) has none, and uses the host's.
    """
    found = said(None, pynvml.nvmlDeviceGetMemoryInfo, handle, version=pynvml.nvmlMemory_v2)
    found = found or said(None, pynvml.nvmlDeviceGetMemoryInfo, handle)
    return Memory(found.total, found.used) if found else Memory(host_memory_bytes(), 0)


def _parts(handle: Any) -> Iterator[Any]:
    for place in range(said(0, pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)):
        part = said(None, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
        if part is not None:
            yield part


def _busy(handle: Any, used: int) -> tuple[Busy, ...]:
    """The programs that compute on it. A container does not see those outside, but sees their memory."""
    from benchmarks.preflight.gpus import IDLE_MIB

    processes: list[Any] = said([], pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    seen = tuple(Busy(pid=one.pid, name=_name_of(one.pid), bytes=one.usedGpuMemory) for one in processes)
    if seen or used <= IDLE_MIB * 2**20:
        return seen
    return (Busy(pid=None, name="a process that cannot be seen from here", bytes=used),)


def _name_of(pid: int) -> str:
    return str(said("unknown", pynvml.nvmlSystemGetProcessName, pid))


def said(otherwise: T, ask: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """NVML's answer. What a driver does not support is no error."""
    try:
        return ask(*arguments, **named)
    except pynvml.NVMLError:
        return otherwise


# --- a request on this machine ------------------------------------------------------------------


def rows(configs: Configs) -> list[Hardware]:
    """The hardware of this machine's kinds of GPU; one that configs/hardware does not know is made known."""
    machine = found()
    known = [configs.hardware(name) for name in configs.names("hardware")] if machine.gpus else []
    of_kinds = [machine_gpus.row_of(group, known, machine.driver) for group in machine_gpus.kinds(machine.gpus)]
    for row in of_kinds:
        configs.learn(row)
    return of_kinds


def named_here(name: str | None, configs: Configs) -> str | None:
    """The hardware that a flag names; of --hardware=here this machine's."""
    if name != machine_gpus.HERE:
        return name
    return next((row.name for row in rows(configs)), "cpu")


def settled(request: Request, configs: Configs, backend: Backend) -> Request:
    """A request at a site without Slurm, with the GPUs of this machine where it left them open; said once."""
    if configs.site(request.site).slurm is not None:
        return request
    of_kinds = rows(configs)
    settled = machine_gpus.with_gpus(request, found(), of_kinds, configs, backend)
    if not of_kinds and _misses_gpus(request, configs, backend):
        _say(f"no GPU can be used, so --hardware=cpu: {found().why_none}")
    row = next((row for row in of_kinds if row.name == settled.hardware), None)
    if row is not None:
        if settled != request:
            _say(machine_gpus.choice_text(request, settled, found(), row, configs, backend))
        if row.name not in configs.names("hardware"):
            _say_unknown(row, configs)
    if settled.hardware in configs.names("hardware"):  # else resolving says that it is unknown
        device = configs.hardware(settled.hardware)
        if like(device, configs.recipes(), configs.site(request.site)) != device.name:
            _say(f"no recipe names {device.title}: recipes are chosen as for an A100")
    return settled


def _misses_gpus(request: Request, configs: Configs, backend: Backend) -> bool:
    """Whether the CPU comes as a surprise. A machine without a driver has no GPU to miss."""
    if request.hardware is not None:
        return request.hardware == machine_gpus.HERE
    return found().why_none != NO_DRIVER and machine_gpus.falls_to_the_cpu(request, configs, backend)


def chosen(benchmark: Benchmark) -> list[MachineGpu]:
    """The GPUs that a run gets; none for a CPU."""
    return [] if benchmark.hardware.kind == "cpu" else machine_gpus.chosen(benchmark, found())


def too_few(request: Request, configs: Configs, backend: Backend, refused: RequestError) -> RequestError:
    """Why a settled request is refused: where this machine has not its GPUs, that goes first."""
    row = next((row for row in rows(configs) if row.name == request.hardware), None)
    if row is None:
        return refused
    try:
        recipe = choose_recipe(request, configs, row, backend)
        gpus = gpus_wanted(request, recipe, row)
    except RequestError:
        return refused
    sizes = scales(recipe, row)
    short = machine_gpus.too_few(row, gpus, request.nodes or 1, request.site, found(), sizes)
    if short is None:
        return refused
    short.why = "; ".join(why for why in (short.why, refused.what) if why)
    if refused.next_command and not isinstance(refused, NoLayoutError):
        short.next_command += f"; elsewhere: {refused.next_command}"
    return short


def refusals(benchmark: Benchmark, configs: Configs, backend: Backend, *, allow_busy: bool) -> Iterator[RequestError]:
    """Every reason why this machine's GPUs cannot run it. Who uses them is asked anew: a sweep lasts hours."""
    found.cache_clear()
    way_on = configs.way_on(benchmark.hardware.name)
    of_kinds = rows(configs)
    sizes = scales(configs.recipe(benchmark.recipe.name), benchmark.hardware)
    yield from machine_gpus.refusals(benchmark, found(), of_kinds, sizes, way_on, allow_busy=allow_busy)
    from benchmarks.request import too_large

    here = len(machine_gpus.of_hardware(found().gpus, benchmark.hardware))
    yield from too_large.refusals(benchmark, configs, backend, here)


@functools.cache
def _say(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def _say_unknown(row: Hardware, configs: Configs) -> None:
    file = configs.path("hardware", row.name)
    text = machine_gpus.row_text(row, datetime.datetime.now(datetime.UTC).date().isoformat())
    _say(
        f"configs/hardware does not know '{row.title}': MFU is null, and recipes of an A100 are taken. A row for it, "
        f"whose peaks are to be filled in:\ncat > {file} <<'END'\n{text}END"
    )
