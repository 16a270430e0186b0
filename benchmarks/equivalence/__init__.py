"""Prove that the backends do the same work. No I/O."""
