"""Containers on one machine: docker, podman or apptainer. On a cluster pyxis starts them (launch/slurm)."""
