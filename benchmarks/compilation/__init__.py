"""A compiled training step held against the formulas. Pure."""
