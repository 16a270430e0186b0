"""Write TensorBoard's event files and log directory for one run, for many runs, and for nights."""
