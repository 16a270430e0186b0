"""Check the nodes of a cluster before it is measured."""
