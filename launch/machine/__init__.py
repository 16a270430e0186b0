"""This machine: its processor, memory and GPUs, and the start of programs on it."""
