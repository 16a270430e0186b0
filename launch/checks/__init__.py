"""Programs outside of runs: compiling a step, checking XLA flags, the proof of equal work."""
