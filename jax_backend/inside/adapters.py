"""Add adapters to MaxText's weights, and check that training changes only the adapters. Loaded by path in MaxText.

With `lora.enable_lora`, MaxText's loop trains only adapters but does not create them. All gradients are then zero,
and MaxText still exits with 0. So this module passes each new model to MaxText's own function that adds adapters.
"""

# With any odd factor, all products modulo 2 ** 32 differ, so the fingerprint depends on the position of each number.
PLACE = 2_654_435_761


class Adapters:
    """Checks that only adapters have changed between the first and the last step of a run."""

    def __init__(self, kit, rank):
        self.proof = kit.AdapterProof(rank)
        self._device_state = None

    def begin(self, device_state):
        self._device_state = device_state  # MaxText's loop stores the new state of each step in this dictionary
        self.proof.begin(*looks_of(device_state["state"]["model"]))

    def finish(self):
        if self._device_state:
            self.proof.finish(*looks_of(self._device_state["state"]["model"]))


def install():
    """Replace the function with which MaxText creates models, so that every new model has adapters."""
    from maxtext.utils import lora_utils, model_creation_utils

    original = model_creation_utils.get_nnx_create_model_fn

    def with_adapters(config, *arguments, **named):
        make = original(config, *arguments, **named)
        return lambda: lora_utils.apply_lora_to_model(make(), None, config)

    model_creation_utils.get_nnx_create_model_fn = with_adapters


def looks_of(model):
    """Return path -> fingerprint for the adapters, and for the frozen weights. The values are equal on all ranks."""
    from flax import nnx

    leaves = {"/".join(map(str, path)): leaf for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param))}
    seen = looked_at({path: leaf.get_value() for path, leaf in leaves.items()})
    adapters = {path: seen[path] for path, leaf in leaves.items() if isinstance(leaf, nnx.LoRAParam)}
    return adapters, {path: seen[path] for path in leaves if path not in adapters}


def looked_at(arrays):
    """Return path -> fingerprint of the array. The devices that store the arrays compute the fingerprints.

    `look` is compiled ahead of time, because jax's own PGLE would profile a normal call of a jitted function.
    """
    import jax

    def look(given):
        return {path: fingerprint(array) for path, array in given.items()}

    seen = jax.jit(look).lower(arrays).compile()(arrays)
    return {path: int(bits) for path, bits in jax.device_get(seen).items()}


def fingerprint(array):
    """Return a number that depends on every bit and its position, so that any changed weight changes the number."""
    import jax
    import jax.numpy as jnp

    word = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[array.dtype.itemsize]
    bits = jax.lax.bitcast_convert_type(array, word).astype(jnp.uint32)
    place, stride = jnp.zeros((), jnp.uint32), 1
    for axis in reversed(range(array.ndim)):
        numbers = jax.lax.broadcasted_iota(jnp.uint32, array.shape, axis)
        place = place + numbers * jnp.uint32(stride % 2**32)
        stride *= array.shape[axis]
    return jnp.sum(bits * (place * jnp.uint32(PLACE) | jnp.uint32(1)), dtype=jnp.uint32)
