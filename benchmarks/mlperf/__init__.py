"""MLPerf Training: its benchmarks as data, its logs read and written, its time to train taken apart. Pure."""
