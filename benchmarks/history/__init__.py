"""Handle many runs: an index with one row per run, filters, exports and archives. The index can be recreated."""
