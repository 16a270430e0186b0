"""What TensorBoard's charts are made of: tags and points of one run, of many runs, of nights. Writes no event."""
