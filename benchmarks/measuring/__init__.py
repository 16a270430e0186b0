"""Steps -> window, statistics, FLOPs, MFU and the summary of a run. Pure."""
