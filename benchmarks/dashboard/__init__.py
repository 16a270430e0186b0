"""TensorBoard's event files and log directory: one run, many runs, nights."""
