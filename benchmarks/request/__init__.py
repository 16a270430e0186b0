"""Resolve a request to one frozen Benchmark, or refuse it."""
