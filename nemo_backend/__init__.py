"""NeMo (Megatron) as a backend of Stepmark; the registry finds BACKEND."""

from nemo_backend.backend import NemoBackend

BACKEND = NemoBackend()
