"""Check the program, the data, PyTorch and the number of GPUs on one node, inside a submission's container.

    mlperf_check.py GPUS PATH=BYTES...      without BYTES, the file may have any size above 0

A folder must not be empty. The last line is `stepmark check: ...`, in the format of benchmarks/backend.py: Checks.
"""

import os
import platform
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

MOST_NAMED = 3
IMAGE = "pass --image with the submission's image for this node's architecture"
DATA = "run python launch/setup.py --site=NAME --task=mlperf --model=NAME --out=DIR, then pass --data=DIR"


def look(gpus, files):
    """Return the versions; raise CheckFailure if something is wrong."""
    wanted = [text.rpartition("=") for text in files]
    faults = [fault for path, _, size in wanted if (fault := fault_of(Path(path), size))]
    for fault in faults:
        print(f"stepmark: {fault}", flush=True)
    if faults:
        more = f", and {len(faults) - MOST_NAMED} more" if len(faults) > MOST_NAMED else ""
        raise kit.CheckFailure(f"mounts: {'; '.join(faults[:MOST_NAMED])}{more}", "", DATA)
    with kit.checking("PyTorch cannot be imported", IMAGE):
        import torch
    kit.check_devices(["a GPU"] * torch.cuda.device_count(), gpus, [], alone=True)
    return {"torch": str(torch.__version__), "python": platform.python_version(), "machine": platform.machine()}


def fault_of(path, size):
    """Return what is wrong with a file; empty if it is right."""
    try:
        if path.is_dir():
            return "" if any(path.iterdir()) else f"{path} is empty"
        there = path.stat().st_size
    except OSError as error:
        return f"{path}: {error.strerror}"
    if there == 0:
        return f"{path} is empty"
    return f"{path} has {there:,} bytes instead of {int(size):,}" if size and there != int(size) else ""


def main(gpus, files):
    return kit.run_check(lambda: look(gpus, files), kit.EventFile(os.devnull))  # the job reads only the last line


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
