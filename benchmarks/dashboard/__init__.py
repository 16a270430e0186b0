"""Write the event files and the log directory of TensorBoard for one run, many runs, and nights."""
