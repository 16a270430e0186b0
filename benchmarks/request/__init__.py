"""Resolves a request to one immutable Benchmark, or refuses it."""
