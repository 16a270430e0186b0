"""Floor 2, the JAX backend: plans MaxText runs, reads what they wrote, holds the worker inside MaxText."""

from jax_backend.backend import MaxTextBackend

BACKEND = MaxTextBackend()
