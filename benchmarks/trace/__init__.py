"""Read the traces of profilers and report how the time of a step is spent. Pure: bytes and rows in, values out."""
