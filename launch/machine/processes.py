"""Start programs on this machine: the paths of a plan, the variables of the programs, and Ctrl-C."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

REPOSITORY = Path(__file__).resolve().parents[2]
Places = dict[str, str]  # placeholder of a plan -> its value on this machine

# Variables of the shell that would change a run but are not in its plan.
NOT_INHERITED = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME")
NOT_INHERITED_PREFIXES = ("JAX_", "XLA_", "M_")  # MaxText reads M_<SETTING> as a setting
# Variables that change how a framework runs. They are recorded in a run's provenance and passed to containers.
PREFIXES_THAT_MATTER = (
    "CUDA_", "HF_", "JAX_", "LD_", "M_", "MALLOC_", "MKL_", "NCCL_", "NEMO_", "NVTE_", "OMP_", "PYTORCH_", "SLURM_",
    "STEPMARK_", "TF_CPP_", "TF_FORCE_", "TF_GPU_", "TF_XLA_", "TORCH_", "UB_", "XLA_",
)  # fmt: skip


def places(python: Path | str, phase_dir: Path) -> Places:
    """Return the value of each placeholder of a plan on this machine."""
    return {"python": str(python), "repository": str(REPOSITORY), "phase_dir": str(phase_dir.resolve())}


def fill(text: str, where: Places) -> str:
    for name, value in where.items():
        text = text.replace("{" + name + "}", value)
    return text


def is_inherited(name: str) -> bool:
    """Return whether programs inherit this shell variable. Variables that override the plan are not inherited."""
    return name not in NOT_INHERITED and not name.startswith(NOT_INHERITED_PREFIXES)


def inherited_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if is_inherited(name)}


def ask(command: Sequence[str], seconds: float, variables: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a program and return its output and exit code. Raise OSError or TimeoutExpired if it does not answer."""
    import subprocess  # imported here, because a dry run does not need it

    return subprocess.run(
        command,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )


@contextlib.contextmanager
def interrupted_once() -> Iterator[Callable[[], None]]:
    """End a run on the first Ctrl-C or SIGTERM. Ignore repeated signals, so that the run can stop in order.

    Call the yielded function when the work is done: signals then wait until the end of the block, so that the result
    can be written.
    """
    import signal

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    waits = has_come = False

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal has_come
        has_come = True
        if not waits:
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)
            raise KeyboardInterrupt

    def let_wait() -> None:
        nonlocal waits
        waits = True

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield let_wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if waits and has_come:
        raise KeyboardInterrupt
