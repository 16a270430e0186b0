"""Compare a compiled or traced training step with the formulas. Pure."""
