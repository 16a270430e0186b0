"""MLPerf Training: its benchmarks as data, checks of its logs, and the parts of the time to train."""
