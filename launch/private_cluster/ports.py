"""Ports that are free, so that several clusters can run beside each other."""

import random
import socket
from collections.abc import Callable

from benchmarks.errors import RunError
from launch.private_cluster.cluster import Ports

FIRST, LAST = 12_000, 32_000  # below those that Linux hands out by itself (32768 and up)
TRIES = 200


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the daemons do it: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def choose(nodes: int, free: Callable[[int], bool] = is_free) -> Ports:
    """A block of neighbouring free ports at a random place: two clusters that start at once rarely meet."""
    needed = nodes + 2
    for _ in range(TRIES):
        first = random.randrange(FIRST, LAST - needed)
        if all(free(port) for port in range(first, first + needed)):
            return Ports(controller=first, accounting=first + 1, first_node=first + 2)
    raise RunError(
        f"no {needed} neighbouring free ports were found",
        where=f"ports {FIRST} to {LAST} of this machine",
        why=f"{TRIES} places were tried",
        next_command="ss -ltn     shows who listens",
    )
