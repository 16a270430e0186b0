"""Read and write the folder of a run, and recompute the run's result from its files."""
