"""Read the traces of profilers, and report how a step spends its time. Pure: bytes and rows in, values out."""
