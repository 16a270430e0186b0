"""This machine: its processor, memory and GPUs, and how programs are started on it."""
