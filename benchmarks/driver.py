"""Which driver an environment's CUDA needs, held against this machine's, before anything is downloaded. Pure."""

import re

from benchmarks.backend import EnvironmentSpec, LockFile
from benchmarks.errors import RequestError
from benchmarks.machine_gpus import MachineGpus

COMPATIBILITY = "docs.nvidia.com/deploy/cuda-compatibility"  # a driver runs each CUDA of its major release


def refusal(spec: EnvironmentSpec, machine: MachineGpus) -> RequestError | None:
    """Why no environment that can be made would see this machine's GPUs; None where one would."""
    if machine.driver is None:
        return None  # without a driver there are no GPUs, and that is refused as such
    too_old = [lock for lock in spec.locks if not _takes(machine.driver, lock)]
    if not too_old or len(too_old) < len(spec.locks):
        return None
    lock = too_old[0]
    return RequestError(
        f"NVIDIA's driver {machine.driver} is too old for the CUDA {_text(lock.cuda)} of environment '{spec.name}'",
        where=f"this machine; {lock.path.name}",
        why=f"CUDA {_text(lock.cuda)} needs driver {lock.driver_minimum} or newer ({COMPATIBILITY}); "
        f"this one takes CUDA {_text(machine.cuda)} at most",
        next_command=f"install driver {lock.driver_minimum} or newer; or --runtime=container, or --python=PATH, "
        "with a framework for the CUDA that you have",
    )


def _takes(driver: str, lock: LockFile) -> bool:
    return lock.cuda is None or _numbers(driver) >= _numbers(lock.driver_minimum)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _text(cuda: tuple[int, int] | None) -> str:
    return ".".join(map(str, cuda)) if cuda else "of no known version"
