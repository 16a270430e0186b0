"""MLPerf Training: its benchmarks as data, the checks of its logs, and the parts of the time to train."""
