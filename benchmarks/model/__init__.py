"""What a run needs and takes before it starts: memory, bounds, estimates, layouts. Pure."""
