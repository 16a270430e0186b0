"""Describes this machine's GPUs and driver, and refuses runs that they cannot execute. Pure."""
