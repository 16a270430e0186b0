"""Programs that are no run: compiling a step, checking XLA flags, the proof of equal work."""
