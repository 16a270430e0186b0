"""Jobs that get a cluster ready: the preflight of its nodes, and the import of container images."""
