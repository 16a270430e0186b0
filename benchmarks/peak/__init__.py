"""Measured matmul rates: what a backend is asked, what it answers, the file that keeps it. Pure."""
