"""Published figures, and the one nearest to a result."""
