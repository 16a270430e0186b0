"""Checks outside of runs: compile a step, check XLA flags, verify a result, and compare the work of backends."""
