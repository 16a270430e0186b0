"""Reads the samples that each node recorded during a run, and summarises them."""
