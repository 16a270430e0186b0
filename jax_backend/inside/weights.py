"""Inside MaxText: the weights of a model by neutral names, and a model that begins with given ones."""

import numpy as np

WHOLE = {  # ours -> theirs, and the order of its axes in ours
    "embedding": ("token_embedder/embedding", (0, 1)),
    "final_norm": ("decoder/decoder_norm/scale", (0,)),
    "head": ("decoder/logits_dense/kernel", (1, 0)),
}
IN_LAYER = {
    "attention_norm": ("pre_self_attention_layer_norm/scale", (0,)),
    "query": ("self_attention/query/kernel", (1, 2, 0)),
    "key": ("self_attention/key/kernel", (1, 2, 0)),
    "value": ("self_attention/value/kernel", (1, 2, 0)),
    "attention_output": ("self_attention/out/kernel", (2, 0, 1)),
    "mlp_norm": ("post_self_attention_layer_norm/scale", (0,)),
    "gate": ("mlp/wi_0/kernel", (1, 0)),
    "up": ("mlp/wi_1/kernel", (1, 0)),
    "down": ("mlp/wo/kernel", (1, 0)),
}
# Beside each kernel: kernel_lora_a [in, r] and kernel_lora_b [r, out], which a scan stacks along the same axis.
IN_LAYER |= {
    f"{ours}{end}": (f"{path}_lora{end}", (1, 0))
    for ours, (path, _) in IN_LAYER.items()
    if path.endswith("kernel")
    for end in ("_a", "_b")
}
SCANNED = "decoder/layers/"
SCAN_AXIS = 1


def neutral(arrays, layers):
    """MaxText's arrays by path -> the same by neutral names. A scan has all layers in one array, along SCAN_AXIS."""
    found = {ours: arrays[path].transpose(axes) for ours, (path, axes) in WHOLE.items() if path in arrays}
    for ours, (path, axes) in IN_LAYER.items():
        stacked = arrays.get(SCANNED + path)
        for layer in range(layers):
            one = arrays.get(unscanned(layer, path)) if stacked is None else np.take(stacked, layer, SCAN_AXIS)
            if one is not None:  # a weight without an adapter, or one that is frozen and has no gradient
                found[f"layers.{layer}.{ours}"] = one.transpose(axes)
    return found


def of_maxtext(weights, layers, paths):
    """The way back, to the paths that the model has."""
    found = {path: weights[ours].transpose(np.argsort(axes)) for ours, (path, axes) in WHOLE.items() if path in paths}
    for ours, (path, axes) in IN_LAYER.items():
        if f"layers.0.{ours}" not in weights:
            continue
        parts = [weights[f"layers.{layer}.{ours}"].transpose(np.argsort(axes)) for layer in range(layers)]
        if SCANNED + path in paths:
            found[SCANNED + path] = np.stack(parts, SCAN_AXIS)
        else:
            found |= {unscanned(layer, path): part for layer, part in enumerate(parts)}
    return found


def unscanned(layer, path):
    return f"decoder/layers_{layer}/{path}"


def flat(state):
    from flax import nnx

    return {
        "/".join(map(str, path)): np.array(leaf.get_value(), np.float32) for path, leaf in nnx.to_flat_state(state)
    }


def load_parameters(model, arrays):
    """Every parameter gets its array, and every array has its parameter: a name too many or too few ends it."""
    from flax import nnx

    nnx.update(model, nnx.from_flat_state(filled(nnx.to_flat_state(nnx.state(model, nnx.Param)), arrays)))


def filled(own, arrays):
    """The parameters of a flat state with these arrays, in their own types and places."""
    import jax

    names = {"/".join(map(str, path)) for path, _ in own}
    if names != arrays.keys():
        raise SystemExit(f"stepmark: weights that fit no parameter: {sorted(names ^ arrays.keys())}")
    found = []
    for path, leaf in own:
        old, new = leaf.get_value(), arrays["/".join(map(str, path))]
        if old.shape != new.shape:
            raise SystemExit(f"stepmark: {'/'.join(map(str, path))} is {old.shape}, given {new.shape}")
        found.append((path, leaf.replace(jax.device_put(new.astype(old.dtype), old.sharding))))
    return found
