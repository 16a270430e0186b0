"""Layer 2, the JAX backend: plan MaxText runs, read their output, and run a worker inside MaxText."""

from jax_backend.backend import MaxTextBackend

BACKEND = MaxTextBackend()
