"""Memory, lower bounds of time, estimates and layouts of a run before it starts. Pure."""
