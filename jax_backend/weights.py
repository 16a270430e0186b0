"""Inside MaxText: the weights of a model by neutral names, and a model that begins with given ones. Loaded by path."""

import importlib.util
from pathlib import Path


def load(path):
    spec = importlib.util.spec_from_file_location(f"stepmark_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


names = load(Path(__file__).with_name("work_program.py"))


def neutral_of(model):
    """The arrays of a train state's model, adapters left out."""
    frozen = {path: array for path, (_, array) in base(model).items()}
    layers = next(array.shape[names.SCAN_AXIS] for path, array in frozen.items() if path.startswith(names.SCANNED))
    return names.neutral(frozen, layers)


def base(model):
    """{path: (its place in the state, its array)} of what is no adapter."""
    import numpy as np
    from flax import nnx

    return {
        "/".join(map(str, path)): (path, np.array(leaf.get_value()))
        for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param))
        if not isinstance(leaf, nnx.LoRAParam)
    }


def begin_with(device_state, file):
    """The frozen weights of the file, in place of random ones; adapters are left as they were made."""
    import jax
    import numpy as np
    from flax import nnx

    with np.load(file) as given:
        weights = {name: given[name] for name in given.files}
    state = device_state["state"]
    own = base(state["model"])
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))
    arrays = names.of_maxtext(weights, layers, own.keys())
    if arrays.keys() != own.keys():
        raise SystemExit(f"stepmark: weights that fit no parameter: {sorted(arrays.keys() ^ own.keys())}")
    filled = []
    for path, leaf in nnx.to_flat_state(state):
        name = "/".join(map(str, path[1:]))
        if path[0] == "model" and name in arrays:
            old = leaf.get_value()
            if old.shape != arrays[name].shape:
                raise SystemExit(f"stepmark: {name} is {old.shape}, given {arrays[name].shape}")
            leaf = leaf.replace(jax.device_put(arrays[name].astype(old.dtype), old.sharding))
        filled.append((path, leaf))
    device_state["state"] = nnx.from_flat_state(filled)
