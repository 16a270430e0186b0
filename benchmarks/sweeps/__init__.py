"""Grids of runs: their cells, how they scale, and pairs of runs that are compared. Pure."""
