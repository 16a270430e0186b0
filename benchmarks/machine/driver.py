"""Which driver the CUDA of an environment or an image needs, held against this machine's, before a download. Pure."""

import re
from collections.abc import Sequence

from benchmarks.backend import EnvironmentSpec, LockFile
from benchmarks.errors import RequestError
from benchmarks.machine.machine_gpus import MachineGpus

COMPATIBILITY = "docs.nvidia.com/deploy/cuda-compatibility"  # a driver runs each CUDA of its major release
# Major release of CUDA -> the oldest driver for all of it: table 1 of minor version compatibility, 2026-11-23.
MINIMUM = {12: "525", 13: "580"}
# NVIDIA's images hold the package cuda-compat, by which data centre GPUs do with these branches as well: the driver
# requirements of SGLang's releases 25.10 and 26.05 (CUDA 13.0 and 13.2), docs.nvidia.com/deeplearning/frameworks.
IMAGE_BRANCHES = ("470.57", "525.85", "535.86", "550.54")
WITHOUT_BRANCHES = ("GeForce", "TITAN")  # forward compatibility is not for these


def refusal(spec: EnvironmentSpec, machine: MachineGpus, *, chooses: bool = True) -> RequestError | None:
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


def image_refusal(spec: EnvironmentSpec, image: str, machine: MachineGpus) -> RequestError | None:
    """The same of the engine's own image. What another image holds is not known, and not refused."""
    own = [spec.image] if isinstance(spec.image, str) else list(spec.image.values())
    if image not in own or _takes_image(spec, machine):
        return None
    in_venv = spec.locks and all(_takes_lock(machine, lock) for lock in spec.locks)
    venv = "--runtime=venv, whose CUDA takes this driver" if in_venv else ""
    ways = [venv, "--image=NAME:TAG of one for the CUDA that you have"]
    return _too_old(machine, spec.image_cuda, "this container image", image, ways)


def minimum(cuda: tuple[int, int] | None) -> str:
    """The oldest driver; empty where none is known."""
    return MINIMUM.get(cuda[0], "") if cuda else ""


def _takes_lock(machine: MachineGpus, lock: LockFile) -> bool:
    # Without a driver there are no GPUs, and that is refused as such.
    return machine.driver is None or _numbers(machine.driver) >= _numbers(minimum(lock.cuda))


def _takes_image(spec: EnvironmentSpec, machine: MachineGpus) -> bool:
    if machine.driver is None or _numbers(machine.driver) >= _numbers(minimum(spec.image_cuda)):
        return bool(spec.image)
    if any(name in gpu.name for gpu in machine.gpus for name in WITHOUT_BRANCHES):
        return False
    here = _numbers(machine.driver)
    return any(here[0] == branch[0] and here >= branch for branch in map(_numbers, IMAGE_BRANCHES))


def _too_old(
    machine: MachineGpus, cuda: tuple[int, int] | None, what: str, where: str, ways: Sequence[str]
) -> RequestError:
    return RequestError(
        f"NVIDIA's driver {machine.driver} is too old for the CUDA {text(cuda)} of {what}",
        where=f"this machine; {where}",
        why=f"CUDA {text(cuda)} needs driver {minimum(cuda)} or newer ({COMPATIBILITY}); "
        f"this one takes CUDA {text(machine.cuda)} at most",
        next_command="; or ".join([f"install driver {minimum(cuda)} or newer", *(way for way in ways if way)]),
    )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def text(cuda: tuple[int, int] | None) -> str:
    return ".".join(map(str, cuda)) if cuda else "of no known version"
