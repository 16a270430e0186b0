"""Computes window, statistics, FLOPs and MFU from the steps of a run, and summarises the run. Pure."""
