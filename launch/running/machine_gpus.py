"""A request on the GPUs of this machine. What follows from them is in benchmarks/machine/machine_gpus.py."""

import ctypes
import functools
import sys
import time
from collections.abc import Iterator

from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.machine import machine_gpus
from benchmarks.machine.machine_gpus import NO_DRIVER, MachineGpu, MachineGpus
from benchmarks.request.resolve import NoLayoutError, Request, choose_recipe, gpus_wanted, like, scales
from benchmarks.values import Benchmark, Hardware


@functools.cache
def found() -> MachineGpus:
    """What a run may use; asked once."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")  # as pynvml does, which takes long to import
    except OSError:
        return MachineGpus(why_none=NO_DRIVER)
    from launch.running import nvml

    return nvml.found()


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
        if like(device, configs, configs.site(request.site), request.backend) != device.name:
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
    from benchmarks.machine import refusals as refused_here

    sizes = scales(recipe, row)
    short = refused_here.too_few(row, gpus, request.nodes or 1, request.site, found(), sizes)
    if short is None:
        return refused
    short.why = "; ".join(why for why in (short.why, refused.what) if why)
    if refused.next_command and not isinstance(refused, NoLayoutError):
        short.next_command += f"; elsewhere: {refused.next_command}"
    return short


def refusals(benchmark: Benchmark, configs: Configs, backend: Backend, *, allow_busy: bool) -> Iterator[RequestError]:
    """Every reason why this machine's GPUs cannot run it. Who uses them is asked anew: a sweep lasts hours."""
    from benchmarks.machine import refusals as refused_here

    found.cache_clear()
    way_on = configs.way_on(benchmark.hardware.name)
    of_kinds = rows(configs)
    sizes = scales(configs.recipe(benchmark.recipe.name), benchmark.hardware)
    yield from refused_here.of_gpus(benchmark, found(), of_kinds, sizes, way_on, allow_busy=allow_busy)
    here = len(machine_gpus.of_hardware(found().gpus, benchmark.hardware))
    yield from refused_here.of_memory(benchmark, configs, backend, here)


@functools.cache
def _say(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def _say_unknown(row: Hardware, configs: Configs) -> None:
    file = configs.path("hardware", row.name)
    text = machine_gpus.row_text(row, time.strftime("%Y-%m-%d", time.gmtime()))
    _say(
        f"configs/hardware does not know '{row.title}': MFU is null, and recipes of an A100 are taken. A row for it, "
        f"whose peaks are to be filled in:\ncat > {file} <<'END'\n{text}END"
    )
