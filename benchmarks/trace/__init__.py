"""Read the traces of profilers, and report how a step spends its time. No I/O: bytes and rows in, values out."""
