"""Check the nodes of a cluster before measuring it."""
