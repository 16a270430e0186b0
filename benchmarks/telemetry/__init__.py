"""Read the samples that each node recorded during a run, and summarise them."""
