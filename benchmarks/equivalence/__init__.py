"""The proof that the backends do the same work. Pure."""
