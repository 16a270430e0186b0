"""How the processes of a MaxText run agree on a last step that comes early (benchmarks/early_stop/stopping.py).

Runs inside MaxText's environment, loaded by its path.
"""

KEY = "stepmark/last_step"
BEGUN = 1  # MaxText writes a step's metrics once the next one is dispatched


class CoordinationService:
    """The key-value store that jax's processes share: 12 us for the rank that holds it, 1.6 ms for another to ask."""

    def _client(self):
        from jax._src import distributed  # jax has no public name for it

        return distributed.global_state.client

    def say(self, text):
        self._client().key_value_set(KEY, text)

    def heard(self):
        try:
            return self._client().key_value_try_get(KEY)
        except Exception as error:  # jaxlib has one class of error for everything
            if "NOT_FOUND" in str(error):
                return None
            raise
