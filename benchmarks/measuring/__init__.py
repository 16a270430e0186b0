"""Compute window, statistics, FLOPs and MFU from the steps of a run, and summarise the run. No I/O."""
