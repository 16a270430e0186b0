"""Sweeps: the cells of a grid of runs, how they scale, and comparisons of cells that differ only in PGLE."""
