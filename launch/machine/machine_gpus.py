"""Apply the GPUs of this machine to a request. The rules are in benchmarks/machine/machine_gpus.py."""

import ctypes
import functools
from collections.abc import Iterator

import yaml

from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.machine import machine_gpus
from benchmarks.machine.machine_gpus import NO_DRIVER, MachineGpu, MachineGpus
from benchmarks.request.resolve import Request, like, scales
from benchmarks.values import Benchmark, Hardware, to_builtins
from launch.terminal.progress import note


@functools.cache
def detect() -> MachineGpus:
    """Return the GPUs that a run may use. The answer is cached."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")  # a quick test for a driver, because importing pynvml takes long
    except OSError:
        return MachineGpus(why_none=NO_DRIVER)
    from launch.machine import nvml

    return nvml.detect()


# --- a request on this machine ------------------------------------------------------------------


def rows(configs: Configs) -> list[Hardware]:
    """Return a row for each type of GPU in this machine; a type that is not in configs/hardware has no peaks."""
    machine = detect()
    known = [configs.hardware(name) for name in configs.names("hardware")] if machine.gpus else []
    of_kinds = [
        next((row for row in known if machine_gpus.of_hardware(group[:1], row)), None)
        or machine_gpus.made_row(group, machine.driver)
        for group in machine_gpus.kinds(machine.gpus)
    ]
    for row in of_kinds:
        configs.register_hardware(row)
    return of_kinds


def named_here(name: str | None, configs: Configs) -> str | None:
    """Return the hardware that a flag names. For --hardware=here, return this machine's hardware."""
    if name != machine_gpus.HERE:
        return name
    return next((row.name for row in rows(configs)), "cpu")


def with_local_gpus(request: Request, configs: Configs, backend: Backend) -> Request:
    """Fill in this machine's GPUs in a request for a site without Slurm, and print a note about the choice."""
    if configs.site(request.site).slurm is not None:
        return request
    of_kinds = rows(configs)
    chosen_request = machine_gpus.with_gpus(request, detect(), of_kinds, configs, backend)
    surprise = request.hardware == machine_gpus.HERE or (request.hardware is None and detect().why_none != NO_DRIVER)
    if not of_kinds and surprise:
        why = detect().why_none
        note(f"No GPU found; running on the CPU.{'' if why == NO_DRIVER else f' Reason: {why}'}", "")
    row = next((row for row in of_kinds if row.name == chosen_request.hardware), None)
    if row is not None:
        if chosen_request != request:
            note(machine_gpus.choice_text(request, chosen_request, detect()))
        if row.name not in configs.names("hardware"):
            made = yaml.safe_dump(to_builtins(row), sort_keys=False)
            note(
                f"configs/hardware has no '{row.title}': MFU is null, and Stepmark uses recipes for an A100. "
                f"To add it, write {configs.path('hardware', row.name)} and fill in its peaks:\n{made}"
            )
    if chosen_request.hardware in configs.names("hardware"):  # `resolve` refuses an unknown name
        device = configs.hardware(chosen_request.hardware)
        if like(device, configs, configs.site(request.site), request.backend) != device.name:
            note(f"no recipe names {device.title}, so Stepmark uses recipes for an A100")
    return chosen_request


def chosen(benchmark: Benchmark) -> list[MachineGpu]:
    """Return the GPUs of this machine that a run gets; empty for a CPU."""
    return [] if benchmark.hardware.kind == "cpu" else machine_gpus.chosen(benchmark, detect())


def refusals(benchmark: Benchmark, configs: Configs, backend: Backend, *, allow_busy: bool) -> Iterator[RequestError]:
    """Yield every reason why this machine's GPUs cannot run a benchmark. Query the GPUs for every run."""
    from benchmarks.machine import refusals as refused_here

    detect.cache_clear()
    sizes = scales(configs.recipe(benchmark.recipe.name), benchmark.hardware)
    missing = refused_here.of_gpus(benchmark, detect(), rows(configs), sizes)
    busy = None if missing or allow_busy else refused_here.in_use(benchmark, detect())
    yield from filter(None, [missing or busy, refused_here.of_memory(benchmark, backend)])
