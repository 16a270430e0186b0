"""Sweeps: the cells of a grid of runs, their scaling, and the comparison of pairs of runs. Pure."""
