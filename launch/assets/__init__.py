"""The files that a run needs, and their download."""
