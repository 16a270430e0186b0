"""Runs on a Slurm cluster: what is asked of it, the job script, and what is done with the job."""
