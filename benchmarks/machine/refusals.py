"""Refuses a benchmark that this machine's GPUs cannot run. No I/O.

The GPUs may differ from the request, or be too few, busy or too small. Their driver may be too old.
"""

import re
from collections.abc import Iterable, Sequence

from benchmarks.backend import Backend, EnvironmentSpec
from benchmarks.errors import RequestError
from benchmarks.machine.machine_gpus import MachineGpus, busy_text, chosen, of_hardware, shown
from benchmarks.model.capacity import total_bytes, usable_bytes
from benchmarks.request.resolve import command_of, request_of
from benchmarks.values import Benchmark, Hardware

COMPATIBILITY = "docs.nvidia.com/deploy/cuda-compatibility"  # a driver runs every CUDA of its major release
# Major release of CUDA -> the oldest driver for all its minor releases (table 1 on that page, read 2026-11-23).
MINIMUM = {12: "525", 13: "580"}


# --- the type and number of GPUs -------------------------------------------------------------------


def of_gpus(
    benchmark: Benchmark, machine: MachineGpus, rows: Sequence[Hardware], scales: Iterable[int]
) -> RequestError | None:
    """Return the refusal if this machine lacks the GPUs that the benchmark needs, otherwise None.

    `scales` contains the numbers of GPUs for which the recipe has layouts.
    """
    hardware, wanted, nodes = benchmark.hardware, benchmark.gpus, benchmark.nodes
    here = of_hardware(machine.gpus, hardware)
    why = machine.hidden or f"its GPUs are {shown(machine.gpus)}"
    if not machine.gpus:
        what = f"this machine has no {wanted} x {hardware.title}: no GPU was found"
        why, cure = f"{machine.why_none}; for a cluster, pass --site=NAME", "python launch/doctor.py machine"
    elif not here:
        what = f"this machine has no {hardware.title}: its GPUs are {shown(machine.gpus)}"
        cure = f"--hardware={rows[0].name}"
    elif len(here) < wanted:
        what = f"this machine has {len(here)} x {hardware.title}, but --gpus={wanted}"
        fewer = max((scale for scale in scales if scale <= len(here)), default=None)
        cure = f"--gpus={fewer} --nodes=1" if fewer else f"python launch/run.py --list --hardware={hardware.name}"
        why += "" if fewer else f", and the recipe has no layout for {len(here)} GPUs or fewer"
    elif nodes > 1:
        what, why = f"site '{benchmark.site.name}' is one machine, but the run needs {nodes} nodes", ""
        cure = "--nodes=1"
    else:
        return None
    where = f"--hardware={hardware.name} --gpus={wanted} --site={benchmark.site.name}"
    return RequestError(what, where=where, why=why, next_command=cure)


def in_use(benchmark: Benchmark, machine: MachineGpus) -> RequestError | None:
    """Return the refusal if other programs use the GPUs that the run would use, otherwise None."""
    busy = [gpu for gpu in chosen(benchmark, machine) if gpu.busy]
    if not busy:
        return None
    return RequestError(
        f"{len(busy)} of the {benchmark.gpus} GPUs {'is' if len(busy) == 1 else 'are'} in use",
        where=f"--hardware={benchmark.hardware.name} --gpus={benchmark.gpus}",
        why=f"{busy_text(busy)}; end these processes, or accept them with --allow_busy, which the result records",
        next_command="--allow_busy",
    )


# --- memory ---------------------------------------------------------------------------------------


def of_memory(benchmark: Benchmark, backend: Backend) -> RequestError | None:
    """Return the refusal if the benchmark needs more memory than a GPU has, otherwise None."""
    storage = backend.storage(benchmark)
    needed, usable = total_bytes(benchmark, storage), usable_bytes(benchmark, storage)
    if usable is None or needed <= usable:
        return None
    return RequestError(
        f"{benchmark.model.name} needs {needed / 1e9:.1f} GB on each GPU, but only {usable / 1e9:.1f} GB can be used",
        where=f"--model={benchmark.model.name} --gpus={benchmark.gpus}",
        why=f"{benchmark.hardware.title} has {(benchmark.hardware.memory_bytes or 0) / 1e9:.1f} GB; use more GPUs, "
        "a smaller micro_batch_size or a smaller sequence_length",
        next_command=command_of(request_of(benchmark, benchmark.settings.overrides), "plan.py layouts"),
    )


# --- the driver -----------------------------------------------------------------------------------


def old_driver(spec: EnvironmentSpec, machine: MachineGpus) -> RequestError | None:
    """Return the refusal if the driver is too old for every environment, otherwise None."""
    # If there is no driver, `of_gpus` refuses the run, because the machine then has no GPUs.
    oldest = [_numbers(minimum_driver(lock.cuda)) for lock in spec.locks]
    if machine.driver is None or not oldest or _numbers(machine.driver) >= min(oldest):
        return None
    lock = spec.locks[0]
    cuda = cuda_text(lock.cuda)
    return RequestError(
        f"NVIDIA's driver {machine.driver} is too old for the CUDA {cuda} of environment '{spec.name}'",
        where=f"this machine; {lock.path.name}",
        why=f"CUDA {cuda} needs driver {minimum_driver(lock.cuda)} or newer ({COMPATIBILITY}); "
        f"this driver supports CUDA {cuda_text(machine.cuda)} at most; update it, use a container, or pass "
        "--python=PATH of a Python whose framework was built for this CUDA",
        next_command="--runtime=container",
    )


def minimum_driver(cuda: tuple[int, int] | None) -> str:
    """Return the oldest driver for a CUDA version; empty if it is unknown."""
    return MINIMUM.get(cuda[0], "") if cuda else ""


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def cuda_text(cuda: tuple[int, int] | None) -> str:
    return ".".join(map(str, cuda)) if cuda else "of an unknown version"
