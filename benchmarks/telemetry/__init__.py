"""The state of the machines during a run: records of the sampler on each node, and their summary."""
