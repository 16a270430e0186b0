"""What starts the runs of a night, and shows its report."""
