"""What the logs of a run that failed say: evidence, the first cause, and what is known of it. Pure."""
