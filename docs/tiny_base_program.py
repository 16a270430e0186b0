"""Runs MaxText as jax_backend/inside/worker.py does, and keeps the weights it ends with (see make_tiny_base.py).

Run by path inside MaxText's environment: its first argument is the file that the weights go into, the rest are the
worker's own.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np

INSIDE = Path(__file__).resolve().parents[1] / "jax_backend" / "inside"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(out, argv):
    worker, weights = load(INSIDE / "worker.py"), load(INSIDE / "weights.py")
    states = []
    original = worker.hook_step
    worker.hook_step = lambda device_state, *others: (states.append(device_state), original(device_state, *others))
    code = worker.main(worker.parse(argv))
    if code == 0:
        # In half the bits: the same numbers then lie in both frameworks.
        arrays = weights.flat(weights.frozen(states[0]["state"]["model"]))
        layers = next(array.shape[weights.SCAN_AXIS] for path, array in arrays.items() if weights.SCANNED in path)
        kept = {name: array.astype(np.float16) for name, array in weights.neutral(arrays, layers).items()}
        np.savez_compressed(out, **kept)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
