"""Select GPUs from those that NVML reports, for a request that does not name GPUs, and for a run. No I/O.

launch/machine/machine_gpus.py queries NVML. benchmarks/machine/refusals.py checks the driver version.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, choose_recipe, scales
from benchmarks.values import Benchmark, Hardware, Plan, Value

HERE = "here"  # --hardware=here: the GPU of this machine, or its CPU if there is no GPU
VISIBLE = "CUDA_VISIBLE_DEVICES"
NO_DRIVER = (
    "there is no NVIDIA driver: libnvidia-ml.so.1 was not found "
    "(a container needs access to the GPUs, as with docker run --gpus=all)"
)


class Busy(Value, frozen=True):
    """A process that uses memory of a GPU."""

    pid: int | None  # None: the process id is not visible, as in a container
    name: str
    bytes: int | None


class MachineGpu(Value, frozen=True):
    index: int  # the index in NVML, which is the order on the PCI bus
    uuid: str
    name: str
    memory_bytes: int
    pci: str
    busy: tuple[Busy, ...] = ()


class MachineGpus(Value, frozen=True):
    """The GPUs of this machine that a run may use, and why others are excluded."""

    gpus: tuple[MachineGpu, ...] = ()
    driver: str | None = None
    cuda: tuple[int, int] | None = None  # the newest CUDA version that the driver supports
    why_none: str = ""  # why there are no GPUs; empty if there are some
    broken: bool = False  # True: a driver is installed but does not respond
    hidden: str = ""  # which GPUs are excluded and why; empty if all can be used


# --- the GPUs that a CUDA program sees ----------------------------------------------------------


def visible(gpus: Sequence[MachineGpu], variable: str | None, in_bus_order: bool) -> MachineGpus:
    """Return the GPUs that a run may use. `variable` is the value of CUDA_VISIBLE_DEVICES."""
    if not gpus:
        return MachineGpus(why_none="the driver shows no GPU")
    if variable is None:
        return MachineGpus(gpus=tuple(gpus))
    words = [word.strip() for word in variable.split(",")]
    if any(map(str.isdigit, words)) and not in_bus_order and len({gpu.name for gpu in gpus}) > 1:
        return MachineGpus(
            why_none=f"{VISIBLE}={variable} is ambiguous, because the GPUs differ and CUDA gives number 0 to the "
            "fastest one: use UUIDs, or export CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    named: list[MachineGpu] = []
    for word in words:
        hits = [gpu for gpu in gpus if str(gpu.index) == word or (word and gpu.uuid.startswith(word))]
        if len(hits) != 1 or hits[0] in named:
            return MachineGpus(why_none=f"{VISIBLE}='{variable}': '{word}' does not name exactly one GPU")
        named += hits
    hidden = f"{VISIBLE}={variable} selects {len(named)} of {len(gpus)} GPUs" if len(named) < len(gpus) else ""
    return MachineGpus(gpus=tuple(named), hidden=hidden)


# --- kinds --------------------------------------------------------------------------------------


def kinds(gpus: Iterable[MachineGpu]) -> list[tuple[MachineGpu, ...]]:
    """Return the GPUs grouped by name: the largest group first; among equal groups, the one with more memory."""
    found: dict[str, list[MachineGpu]] = {}
    for gpu in gpus:
        found.setdefault(gpu.name, []).append(gpu)
    return sorted((tuple(group) for group in found.values()), key=lambda group: (-len(group), -group[0].memory_bytes))


def shown(gpus: Iterable[MachineGpu]) -> str:
    return " and ".join(f"{len(group)} x {group[0].name}" for group in kinds(gpus))


def of_hardware(gpus: Iterable[MachineGpu], hardware: Hardware) -> list[MachineGpu]:
    known = {name.casefold() for name in hardware.device_names}
    return [gpu for gpu in gpus if gpu.name.casefold() in known]


def made_row(group: Sequence[MachineGpu], driver: str | None) -> Hardware:
    name = group[0].name
    return Hardware(
        name=re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_"),
        title=name,
        kind="gpu",
        platform="cuda",
        device_names=[name],
        devices_per_node=len(group),
        memory_gb=round(group[0].memory_bytes / 1e9, 1),
        peaks={},
        achievable={},
        emulated=[],
        source=f"NVML of driver {driver}: name and memory",
        date="",
    )


# --- defaults for a request ---------------------------------------------------------------------


def with_gpus(
    request: Request, machine: MachineGpus, rows: Sequence[Hardware], configs: Configs, backend: Backend
) -> Request:
    """Return the request with this machine's GPUs if it does not name a device and a recipe is made for these GPUs.

    `rows` contains the hardware of each kind of GPU in the machine, in the order of `kinds`.
    """
    if request.hardware == HERE:
        request = msgspec.structs.replace(request, hardware=rows[0].name if rows else "cpu")
    elif request.hardware is None:
        if not rows or not _names(request, rows[0], configs, backend):
            return request
        request = msgspec.structs.replace(request, hardware=rows[0].name)
    row = next((row for row in rows if row.name == request.hardware), None)
    if row is None or request.gpus is not None or request.nodes is not None:
        return request
    count = len(of_hardware(machine.gpus, row))
    return msgspec.structs.replace(request, gpus=_scale(request, row, count, configs, backend))


def _names(request: Request, row: Hardware, configs: Configs, backend: Backend) -> bool:
    """Return whether a recipe is made for this GPU. Without --hardware, recipes for any device use the CPU."""
    try:
        recipe = choose_recipe(request, configs, row, backend)
    except RequestError:
        return False
    return configs.hardware(recipe.defaults.hardware).kind != "cpu"


def _scale(request: Request, row: Hardware, count: int, configs: Configs, backend: Backend) -> int | None:
    """Return the largest number of GPUs, up to `count`, with a layout in the recipe; None: use its default."""
    if backend.layout_settings & request.settings.keys():
        return count
    try:
        recipe = choose_recipe(request, configs, row, backend)
    except RequestError:  # resolving the request reports this error
        return None
    return max((gpus for gpus in scales(recipe, row) if gpus <= count), default=None)


def choice_text(request: Request, settled: Request, machine: MachineGpus) -> str:
    """Return one line with the flags that Stepmark chose because the user did not pass them."""
    hidden = f" ({machine.hidden})" if machine.hidden else ""
    flags = [
        f"--{name}={getattr(settled, name)}"
        for name in ("hardware", "gpus")
        if getattr(settled, name) != getattr(request, name)
    ]
    return f"this machine has {shown(machine.gpus)}{hidden}: {' '.join(flags)}"


# --- the GPUs of a run --------------------------------------------------------------------------


def chosen(benchmark: Benchmark, machine: MachineGpus) -> list[MachineGpu]:
    """Return the GPUs for the run in bus order. Idle GPUs are chosen first."""
    here = of_hardware(machine.gpus, benchmark.hardware)
    return sorted(sorted(here, key=lambda gpu: bool(gpu.busy))[: benchmark.gpus], key=lambda gpu: gpu.index)


def on_gpus(plan: Plan, gpus: Sequence[MachineGpu]) -> Plan:
    """Return the plan with the UUIDs of its GPUs. Indices are ambiguous, because CUDA may not count in bus order."""
    if not gpus:
        return plan
    named = {VISIBLE: ",".join(gpu.uuid for gpu in gpus)}
    phases = [msgspec.structs.replace(phase, environment=named | phase.environment) for phase in plan.phases]
    return msgspec.structs.replace(plan, phases=phases)


def busy_text(gpus: Iterable[MachineGpu]) -> str:
    return "; ".join(f"GPU {gpu.index}: " + ", ".join(map(_process_text, gpu.busy)) for gpu in gpus if gpu.busy)


def busy_notes(gpus: Iterable[MachineGpu]) -> list[str]:
    text = busy_text(gpus)
    return [f"in use when the run began (--allow_busy): {text}"] if text else []


def _process_text(busy: Busy) -> str:
    name = busy.name if busy.pid is None else f"process {busy.pid} ({busy.name})"
    return name + (f" holds {busy.bytes / 1e9:.1f} GB" if busy.bytes else "")
