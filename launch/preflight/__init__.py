"""Checks what runs need: the nodes of a cluster by one job, and this machine."""
