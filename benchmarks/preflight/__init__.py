"""Judge the answers of a cluster's nodes before it is measured."""
