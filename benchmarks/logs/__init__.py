"""Read training logs of other programs, and compute their steps and results."""
