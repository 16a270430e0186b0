"""Layer 2, the NeMo backend: plan runs of NeMo, Megatron-Bridge and MLPerf submissions, and read their output."""

from nemo_backend.backend import NemoBackend

BACKEND = NemoBackend()
