"""Diagnosis, checks of flags, the equivalence proof, peaks: programs that are no run."""
