"""Start the runs of a night, and show its report."""
