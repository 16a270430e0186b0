"""Why this machine's GPUs do not run a benchmark: there are none such, too few, or other programs use them; they have
too little memory, and what would fit instead; or their driver is too old, which is known before a download. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from benchmarks.backend import Backend, EnvironmentSpec, LockFile
from benchmarks.errors import RequestError
from benchmarks.machine.machine_gpus import MachineGpus, busy_text, chosen, of_hardware, shown
from benchmarks.measuring.flops import parameter_count
from benchmarks.planning.capacity import fits, total_bytes, usable_bytes
from benchmarks.request.resolve import ANY, ConfigSource, Request, plan_command, resolve, scales
from benchmarks.values import Benchmark, Hardware, Recipe

SHORTEST_SEQUENCE = 256  # that is offered
COMPATIBILITY = "docs.nvidia.com/deploy/cuda-compatibility"  # a driver runs each CUDA of its major release
# Major release of CUDA -> the oldest driver for all of it: table 1 of minor version compatibility, 2026-11-23.
MINIMUM = {12: "525", 13: "580"}
# NVIDIA's images hold the package cuda-compat, by which data centre GPUs do with these branches as well: the driver
# requirements of SGLang's releases 25.10 and 26.05 (CUDA 13.0 and 13.2), docs.nvidia.com/deeplearning/frameworks.
IMAGE_BRANCHES = ("470.57", "525.85", "535.86", "550.54")
WITHOUT_BRANCHES = ("GeForce", "TITAN")  # forward compatibility is not for these


# --- which, and how many ---------------------------------------------------------------------------


def of_gpus(
    benchmark: Benchmark,
    machine: MachineGpus,
    rows: Sequence[Hardware],
    scales: Iterable[int],
    way_on: str,
    *,
    allow_busy: bool,
) -> Iterator[RequestError]:
    """Why this machine's GPUs cannot run it.

    `scales`: numbers of GPUs that its recipe has layouts for. `way_on` says where else such GPUs can be had.
    """
    hardware, wanted = benchmark.hardware, benchmark.gpus
    where = f"--hardware={hardware.name} --gpus={wanted} --site={benchmark.site.name}"
    plan = "the same command with --dry_run shows the plan"
    here = of_hardware(machine.gpus, hardware)
    if not machine.gpus:
        yield RequestError(
            f"this machine has no {wanted} x {hardware.title}: no GPU was found",
            where=where,
            why=machine.why_none,
            next_command=f"python launch/doctor.py shows what was asked; elsewhere: {way_on}; {plan}",
        )
    elif not here:
        yield RequestError(
            f"this machine has no {hardware.title}: its GPUs are {shown(machine.gpus)}",
            where=where,
            why=machine.hidden or f"{hardware.name} is called {' or '.join(hardware.device_names)}",
            next_command=f"--hardware={rows[0].name}; elsewhere: {way_on}; {plan}",
        )
    elif short := too_few(hardware, wanted, benchmark.nodes, benchmark.site.name, machine, scales):
        short.next_command += f"; elsewhere: {way_on}; {plan}"
        yield short
    elif not allow_busy and (busy := [gpu for gpu in chosen(benchmark, machine) if gpu.busy]):
        fewer = _most(scales, len([gpu for gpu in here if not gpu.busy]))
        fewer_text = f"--gpus={fewer} takes idle ones; " if fewer else ""
        yield RequestError(
            f"{len(busy)} of the {wanted} GPUs {'is' if len(busy) == 1 else 'are'} in use",
            where=where,
            why=busy_text(busy),
            next_command=f"end what uses them; {fewer_text}--allow_busy runs beside it, and the result says so",
        )


def too_few(
    hardware: Hardware, gpus: int, nodes: int, site: str, machine: MachineGpus, scales: Iterable[int]
) -> RequestError | None:
    """Of a machine that has such GPUs: that it has not so many, or that it is no more than one node."""
    here = len(of_hardware(machine.gpus, hardware))
    if here and here < gpus:
        most = _most(scales, here)
        fewer = f"--gpus={most}" + (" --nodes=1" if nodes > 1 else "")
        return RequestError(
            f"this machine has {here} x {hardware.title}, {gpus} are asked for",
            where=f"--hardware={hardware.name} --gpus={gpus} --site={site}",
            why=machine.hidden or f"its GPUs are {shown(machine.gpus)}",
            next_command=fewer if most else f"the recipe has no layout for {here} or fewer",
        )
    if here and nodes > 1:
        return RequestError(
            f"site '{site}' is one machine, {nodes} nodes are asked for",
            where=f"--nodes={nodes}",
            next_command="--nodes=1",
        )
    return None


def _most(scales: Iterable[int], count: int) -> int | None:
    return max((scale for scale in scales if scale <= count), default=None)


# --- memory ---------------------------------------------------------------------------------------


def of_memory(benchmark: Benchmark, configs: ConfigSource, backend: Backend, here: int) -> Iterator[RequestError]:
    """`here`: how many GPUs of its kind this machine has."""
    storage = backend.storage(benchmark)
    needed, usable = total_bytes(benchmark, storage), usable_bytes(benchmark, storage)
    if usable is None or fits(benchmark, storage):
        return
    more = _more_gpus(benchmark, configs, backend)
    ways = [*_at_this_scale(benchmark, configs, backend), *(way for gpus, way in more if gpus <= here)]
    ways = ways or _other_work(benchmark, configs, backend)
    ways += [f"on another machine, {way}" for gpus, way in more if gpus > here]
    yield RequestError(
        f"{benchmark.model.name} needs {needed / 1e9:.1f} GB on each GPU, {usable / 1e9:.1f} GB are usable",
        where=f"--model={benchmark.model.name} --gpus={benchmark.gpus}",
        why=f"{benchmark.hardware.title} has {benchmark.hardware.memory_gb:g} GB",
        next_command="; or ".join(ways) or f"GPUs with more memory than {benchmark.hardware.memory_gb:g} GB",
    )


def _at_this_scale(benchmark: Benchmark, configs: ConfigSource, backend: Backend) -> list[str]:
    """A smaller batch; where none fits, shorter sequences; where those do not, other layouts."""
    asked = _asked(benchmark)

    def halved(name: str, value: int, least: int) -> list[str]:
        while (value := value // 2) >= least:
            smaller = msgspec.structs.replace(asked, settings={**asked.settings, name: str(value)})
            if _fits(smaller, configs, backend):
                return [f"--set={name}={value}"]
        return []

    return (
        halved("micro_batch_size", benchmark.micro_batch_size, 1)
        or halved("sequence_length", benchmark.sequence_length, SHORTEST_SEQUENCE)
        or _other_layouts(benchmark, configs, backend)
    )


def _other_layouts(benchmark: Benchmark, configs: ConfigSource, backend: Backend) -> list[str]:
    from benchmarks.planning.layouts import layouts
    from benchmarks.planning.read_once import ReadOnce

    asked = _asked(benchmark)
    found = layouts(asked, benchmark, ReadOnce(configs), backend)
    return [plan_command(asked)] if any(one and fits(one, backend.storage(one)) for one in found) else []


def _more_gpus(benchmark: Benchmark, configs: ConfigSource, backend: Backend) -> list[tuple[int, str]]:
    """The least number of them, and how it is asked for."""
    asked = _asked(benchmark)
    layout = backend.layout_settings & asked.settings.keys()
    settings = {name: text for name, text in asked.settings.items() if name not in layout}
    without = f" without --set={' and --set='.join(sorted(layout))}" if layout else ""
    sizes = scales(_recipe(benchmark, configs), benchmark.hardware)
    for gpus in (scale for scale in sizes if scale > benchmark.gpus):
        if _fits(msgspec.structs.replace(asked, gpus=gpus, settings=settings), configs, backend):
            return [(gpus, f"--gpus={gpus}{without}")]
    return []


def _other_work(benchmark: Benchmark, configs: ConfigSource, backend: Backend) -> list[str]:
    """Adapters instead of all weights, and the largest of the smaller models."""
    asked = msgspec.structs.replace(_asked(benchmark), engine=None, recipe=None)
    found = []
    if asked.task == "pretrain" and _fits(msgspec.structs.replace(asked, task="lora"), configs, backend):
        found.append("--task=lora")
    models = [configs.model(name) for name in _recipe(benchmark, configs).models if name != ANY]
    sizes = {model.name: parameter_count(model) for model in models}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        smaller = sizes[name] < parameter_count(benchmark.model)
        if smaller and _fits(msgspec.structs.replace(asked, model=name), configs, backend):
            return [*found, f"--model={name}"]
    return found


def _recipe(benchmark: Benchmark, configs: ConfigSource) -> Recipe:
    return next(recipe for recipe in configs.recipes(benchmark.backend) if recipe.name == benchmark.recipe.name)


def _asked(benchmark: Benchmark) -> Request:
    """The benchmark as it would be typed, less the global batch, which gives way to what fits."""
    return Request(
        backend=benchmark.backend,
        model=benchmark.model.name,
        task=benchmark.task,
        engine=benchmark.engine,
        dtype=benchmark.dtype,
        hardware=benchmark.hardware.name,
        gpus=benchmark.gpus,
        steps=benchmark.steps,
        window=benchmark.window,
        settings={name: text for name, text in benchmark.overrides.items() if name != "global_batch_size"},
        recipe=benchmark.recipe.name,
    )


def _fits(asked: Request, configs: ConfigSource, backend: Backend) -> bool:
    try:
        benchmark = resolve(asked, configs, backend)
    except RequestError:
        return False
    return fits(benchmark, backend.storage(benchmark))


# --- the driver -----------------------------------------------------------------------------------


def old_driver(spec: EnvironmentSpec, machine: MachineGpus, *, chooses: bool = True) -> RequestError | None:
    """Why no environment that can be made would see this machine's GPUs; None where one would.

    `chooses`: the command may be told of another runtime.
    """
    too_old = [lock for lock in spec.locks if not _takes_lock(machine, lock)]
    if not too_old or len(too_old) < len(spec.locks):
        return None
    lock = too_old[0]
    container = "--runtime=container, whose image takes this driver" if _takes_image(spec, machine) else ""
    python = "--python=PATH of an interpreter with a framework for the CUDA that you have"
    ways = [container, python] if chooses else []
    return _too_old(machine, lock.cuda, f"environment '{spec.name}'", lock.path.name, ways)


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
