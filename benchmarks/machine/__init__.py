"""Describe this machine's GPUs and driver, and refuse runs that they cannot execute. No I/O."""
