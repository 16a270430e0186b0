"""Runs on a Slurm cluster: the options, script and submission of the job, and the collection of the result."""
