"""Downloads, and what a run needs."""
