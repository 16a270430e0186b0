"""A private Slurm cluster of many nodes on one machine, with its own daemons, settings and state outside of /etc."""
