"""Floor 1: the pure core. Values, resolving, FLOPs, windows, summaries; no framework, no subprocess, no Slurm."""
