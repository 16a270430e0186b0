"""A private Slurm cluster of many nodes on one machine: daemons, settings and state of its own, nothing in /etc."""
