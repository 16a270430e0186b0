"""Training until a target is reached: when it is looked at, what a run came to, and how it stands meanwhile."""
