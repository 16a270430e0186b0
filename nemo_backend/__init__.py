"""Floor 2, the second backend (NeMo/Megatron): registers no backend yet, so `--backend=nemo` is refused."""
