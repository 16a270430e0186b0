"""Show published results, and compare a result with the nearest published row."""
