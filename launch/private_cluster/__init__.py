"""A private Slurm cluster of many nodes on one machine: daemons, settings and state of its own, nothing in /etc.

`lifecycle` starts and stops one, `faults` breaks one on purpose. Of the rest, `configuration` is pure text.
"""
