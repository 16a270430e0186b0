"""Inside MaxText: add adapters to its weights, and compare both before the first step and after the last.

With `lora.enable_lora`, MaxText's loop trains only adapters but does not create them: gradients are then zero, and it
exits 0. So each model that it creates passes through MaxText's own function that adds them. Loaded by path.
"""

# Any odd number: products with it never meet again modulo 2 ** 32, so a number's place counts as much as its bits.
PLACE = 2_654_435_761


class Adapters:
    """Create the adapters of a run, and prove that only they have changed."""

    def __init__(self, kit, rank):
        self.proof = kit.AdapterProof(rank)
        self._device_state = None

    def begin(self, device_state):
        self._device_state = device_state  # MaxText's loop puts each step's new state into it
        self.proof.begin(*looks_of(device_state["state"]["model"]))

    def finish(self):
        if self._device_state:
            self.proof.finish(*looks_of(self._device_state["state"]["model"]))


def install():
    """Rebind MaxText's maker of models, which it looks up late; its source is not touched."""
    from maxtext.utils import lora_utils, model_creation_utils

    original = model_creation_utils.get_nnx_create_model_fn

    def with_adapters(config, *arguments, **named):
        make = original(config, *arguments, **named)
        return lambda: lora_utils.apply_lora_to_model(make(), None, config)

    model_creation_utils.get_nnx_create_model_fn = with_adapters


def looks_of(model):
    """(adapters, frozen): the bits of each array of a model's state, by its path; the same on every rank."""
    from flax import nnx

    leaves = {"/".join(map(str, path)): leaf for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param))}
    seen = looked_at({path: leaf.get_value() for path, leaf in leaves.items()})
    adapters = {path: seen[path] for path, leaf in leaves.items() if isinstance(leaf, nnx.LoRAParam)}
    return adapters, {path: seen[path] for path in leaves if path not in adapters}


def looked_at(arrays):
    """{path: its bits as one number}, computed where the arrays are.

    Compiled ahead of time: jax's own profile-guided way would take a call like a step's for one to profile.
    """
    import jax

    def look(given):
        return {path: fingerprint(array) for path, array in given.items()}

    seen = jax.jit(look).lower(arrays).compile()(arrays)
    return {path: int(bits) for path, bits in jax.device_get(seen).items()}


def fingerprint(array):
    """A number that follows from every bit and its place; one changed weight changes it, in any precision."""
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
