"""The diagnosis of a failed run from its logs: evidence, the first cause, and its explanation. Pure."""
