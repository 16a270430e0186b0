"""Diagnose a failed run from its logs: collect evidence, find the first cause, and explain it. No I/O."""
