"""Reads and writes the folder of a run, and recomputes the run's result from its files."""
