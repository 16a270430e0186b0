"""The proof that the backends do the same work, and the faults planted to test the proof. Pure."""
