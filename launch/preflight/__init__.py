"""Check that the nodes of a cluster, or this machine, can run benchmarks. One job checks all nodes."""
