"""Prove that the backends do the same work. Pure."""
