"""Inside a submission's container, on one node: the program, the data, PyTorch and the GPUs that were asked for.

    mlperf_check.py GPUS PATH=BYTES...      BYTES may be empty: it must be there, and not be empty

A folder must hold something. The last line is `stepmark check: ...`, as benchmarks/backend.py: Checks has it.
"""

import importlib
import json
import platform
import sys
from pathlib import Path

MOST_NAMED = 3
IMAGE = "the submission's own image, for this node's architecture (--image)"
DATA = "python launch/setup.py --site=NAME --task=mlperf --model=NAME --out=DIR makes the data; --data=DIR names them"


class WrongError(Exception):
    """What is wrong, and what to do next."""


def fault_of(path: Path, size: str) -> str:
    """What is wrong with a file; empty where nothing is."""
    try:
        if path.is_dir():
            return "" if any(path.iterdir()) else f"{path} is empty"
        there = path.stat().st_size
    except OSError as error:
        return f"{path}: {error.strerror}"
    if there == 0:
        return f"{path} is empty"
    return f"{path} has {there:,} bytes, {int(size):,} are expected" if size and there != int(size) else ""


def check_files(files: list[str]) -> None:
    wanted = [text.rpartition("=") for text in files]
    faults = [fault for path, _, size in wanted if (fault := fault_of(Path(path), size))]
    for fault in faults:
        print(f"stepmark: {fault}", flush=True)
    if faults:
        more = f", and {len(faults) - MOST_NAMED} more" if len(faults) > MOST_NAMED else ""
        raise WrongError(f"mounts: {'; '.join(faults[:MOST_NAMED])}{more}", DATA)


def versions_with_gpus(gpus: int) -> dict[str, str]:
    """What is there; WrongError where PyTorch is not, or sees other GPUs."""
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError, RuntimeError) as error:  # a library that does not fit is any of these
        raise WrongError(f"PyTorch cannot be imported: {error}", IMAGE) from None
    seen = torch.cuda.device_count()
    if seen != gpus:
        raise WrongError(
            f"PyTorch sees {seen} GPUs; {gpus} were asked for on this node",
            "nvidia-smi in such a job; --gpu_request says how GPUs are asked for",
        )
    return {"torch": str(torch.__version__), "python": platform.python_version(), "machine": platform.machine()}


def main(gpus: int, files: list[str]) -> int:
    try:
        check_files(files)
        versions = versions_with_gpus(gpus)
    except WrongError as error:
        what, todo = error.args
        print(f"stepmark check: {what}; next: {todo}", flush=True)
        return 1
    print(f"stepmark check: ok {json.dumps(versions)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
