"""Sweeps and nights of many runs, and the scheduler and locks that both use."""
