"""Why this machine's GPUs do not run a benchmark: there are none such, too few, or other programs use them; they have
too little memory; or their driver is too old, which is known before a download. Pure.
"""

import re
from collections.abc import Iterable, Sequence

from benchmarks.backend import Backend, EnvironmentSpec, LockFile
from benchmarks.errors import DRY_RUN_SHOWS, RequestError
from benchmarks.machine.machine_gpus import MachineGpus, busy_text, chosen, of_hardware, shown
from benchmarks.model.capacity import total_bytes, usable_bytes
from benchmarks.request.resolve import command_of, request_of
from benchmarks.values import Benchmark, Hardware

COMPATIBILITY = "docs.nvidia.com/deploy/cuda-compatibility"  # a driver runs each CUDA of its major release
# Major release of CUDA -> the oldest driver for all of it: table 1 of minor version compatibility, 2026-11-23.
MINIMUM = {12: "525", 13: "580"}
# NVIDIA's images hold the package cuda-compat, by which data centre GPUs do with these branches as well: the driver
# requirements of SGLang's releases 25.10 and 26.05 (CUDA 13.0 and 13.2), docs.nvidia.com/deeplearning/frameworks.
IMAGE_BRANCHES = ("470.57", "525.85", "535.86", "550.54")
WITHOUT_BRANCHES = ("GeForce", "TITAN")  # forward compatibility is not for these


# --- which, and how many ---------------------------------------------------------------------------


def of_gpus(
    benchmark: Benchmark, machine: MachineGpus, rows: Sequence[Hardware], scales: Iterable[int], way_on: str
) -> RequestError | None:
    """Why this machine's GPUs cannot run it.

    `scales`: numbers of GPUs that its recipe has layouts for. `way_on` says where else such GPUs can be had.
    """
    hardware, wanted, nodes = benchmark.hardware, benchmark.gpus, benchmark.nodes
    here = of_hardware(machine.gpus, hardware)
    if not machine.gpus:
        what = f"this machine has no {wanted} x {hardware.title}: no GPU was found"
        why, cure = machine.why_none, "python launch/doctor.py shows what was asked"
    elif not here:
        what = f"this machine has no {hardware.title}: its GPUs are {shown(machine.gpus)}"
        why = machine.hidden or f"{hardware.name} is called {' or '.join(hardware.device_names)}"
        cure = f"--hardware={rows[0].name}"
    elif len(here) < wanted:
        what = f"this machine has {len(here)} x {hardware.title}, {wanted} are asked for"
        why, most = machine.hidden or f"its GPUs are {shown(machine.gpus)}", _most(scales, len(here))
        fewer = f"--gpus={most}" + (" --nodes=1" if nodes > 1 else "")
        cure = fewer if most else f"a smaller model of python launch/run.py --list --hardware={hardware.name}"
        why += "" if most else f", and the recipe has no layout for {len(here)} or fewer"
    elif nodes > 1:
        what, why = f"site '{benchmark.site.name}' is one machine, {nodes} nodes are asked for", ""
        cure = "--nodes=1"
    else:
        return None
    where = f"--hardware={hardware.name} --gpus={wanted} --site={benchmark.site.name}"
    # More GPUs than one machine has are meant for a cluster.
    ways = [way_on, cure] if wanted > hardware.devices_per_node else [cure, f"elsewhere: {way_on}"]
    return RequestError(what, where=where, why=why, next_command="; ".join([*ways, DRY_RUN_SHOWS]))


def in_use(benchmark: Benchmark, machine: MachineGpus, scales: Iterable[int]) -> RequestError | None:
    """That other programs use its GPUs, where there are enough of them."""
    busy = [gpu for gpu in chosen(benchmark, machine) if gpu.busy]
    idle = [gpu for gpu in of_hardware(machine.gpus, benchmark.hardware) if not gpu.busy]
    if not busy:
        return None
    fewer = _most(scales, len(idle))
    fewer_text = f"--gpus={fewer} takes idle ones; " if fewer else ""
    return RequestError(
        f"{len(busy)} of the {benchmark.gpus} GPUs {'is' if len(busy) == 1 else 'are'} in use",
        where=f"--hardware={benchmark.hardware.name} --gpus={benchmark.gpus}",
        why=busy_text(busy),
        next_command=f"end what uses them; {fewer_text}--allow_busy runs beside it, and the result says so",
    )


def _most(scales: Iterable[int], count: int) -> int | None:
    return max((scale for scale in scales if scale <= count), default=None)


# --- memory ---------------------------------------------------------------------------------------


def of_memory(benchmark: Benchmark, backend: Backend) -> RequestError | None:
    """That a GPU has too little memory."""
    storage = backend.storage(benchmark)
    needed, usable = total_bytes(benchmark, storage), usable_bytes(benchmark, storage)
    if usable is None or needed <= usable:
        return None
    ranks = command_of(request_of(benchmark, benchmark.settings.overrides), "plan.py layouts")
    return RequestError(
        f"{benchmark.model.name} needs {needed / 1e9:.1f} GB on each GPU, {usable / 1e9:.1f} GB are usable",
        where=f"--model={benchmark.model.name} --gpus={benchmark.gpus}",
        why=f"{benchmark.hardware.title} has {benchmark.hardware.memory_gb:g} GB",
        next_command=f"{ranks} ranks the layouts that fit; or a smaller --set=micro_batch_size, a shorter "
        "--set=sequence_length or more --gpus",
    )


# --- the driver -----------------------------------------------------------------------------------


def old_driver(spec: EnvironmentSpec, machine: MachineGpus, *, chooses: bool = True) -> RequestError | None:
    """Why no environment that can be made would see this machine's GPUs; None where one would.

    `chooses`: the command may be told of another runtime.
    """
    if not spec.locks or any(_takes_lock(machine, lock) for lock in spec.locks):
        return None
    lock = spec.locks[0]
    container = "--runtime=container, whose image takes this driver" if _takes_image(spec, machine) else ""
    python = "--python=PATH of an interpreter with a framework for the CUDA that you have"
    what = f"environment '{spec.name}'"
    return _too_old(machine, lock.cuda, what, lock.path.name, [container, python] if chooses else [])


def old_driver_for_image(spec: EnvironmentSpec, image: str, machine: MachineGpus) -> RequestError | None:
    """The same of the engine's own image. What another image holds is not known, and not refused."""
    own = [spec.image] if isinstance(spec.image, str) else list(spec.image.values())
    if image not in own or _takes_image(spec, machine):
        return None
    in_venv = spec.locks and all(_takes_lock(machine, lock) for lock in spec.locks)
    venv = "--runtime=venv, whose CUDA takes this driver" if in_venv else ""
    ways = [venv, "--image=NAME:TAG of one for the CUDA that you have"]
    return _too_old(machine, spec.image_cuda, "this container image", image, ways)


def minimum_driver(cuda: tuple[int, int] | None) -> str:
    """The oldest driver; empty where none is known."""
    return MINIMUM.get(cuda[0], "") if cuda else ""


def _takes_lock(machine: MachineGpus, lock: LockFile) -> bool:
    # Without a driver there are no GPUs, and that is refused as such.
    return machine.driver is None or _numbers(machine.driver) >= _numbers(minimum_driver(lock.cuda))


def _takes_image(spec: EnvironmentSpec, machine: MachineGpus) -> bool:
    if machine.driver is None or _numbers(machine.driver) >= _numbers(minimum_driver(spec.image_cuda)):
        return bool(spec.image)
    if any(name in gpu.name for gpu in machine.gpus for name in WITHOUT_BRANCHES):
        return False
    here = _numbers(machine.driver)
    return any(here[0] == branch[0] and here >= branch for branch in map(_numbers, IMAGE_BRANCHES))


def _too_old(
    machine: MachineGpus, cuda: tuple[int, int] | None, what: str, where: str, ways: Sequence[str]
) -> RequestError:
    return RequestError(
        f"NVIDIA's driver {machine.driver} is too old for the CUDA {cuda_text(cuda)} of {what}",
        where=f"this machine; {where}",
        why=f"CUDA {cuda_text(cuda)} needs driver {minimum_driver(cuda)} or newer ({COMPATIBILITY}); "
        f"this one takes CUDA {cuda_text(machine.cuda)} at most",
        next_command="; or ".join([f"install driver {minimum_driver(cuda)} or newer", *(way for way in ways if way)]),
    )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def cuda_text(cuda: tuple[int, int] | None) -> str:
    return ".".join(map(str, cuda)) if cuda else "of no known version"
