"""What the machines did beside a run: the sampler that runs on each node, and what is made of its samples."""
