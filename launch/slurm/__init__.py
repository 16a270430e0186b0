"""Runs on a Slurm cluster: the job's options, its script, its submission, and the collection of its result."""
