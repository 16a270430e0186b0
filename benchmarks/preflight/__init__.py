"""What the nodes of a cluster answer before it is measured, judged."""
