"""Layer 3: the commands, the code that starts runs at a site, and the screen. It contains no metrics or formulas."""
