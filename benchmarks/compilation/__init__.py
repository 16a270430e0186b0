"""Compare a compiled or traced training step with the formulas. No I/O."""
