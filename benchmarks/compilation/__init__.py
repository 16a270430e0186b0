"""A compiled training step compared with the formulas. Pure."""
