"""MLPerf Training: its benchmarks as data, its logs read and judged, its time to train taken apart."""
