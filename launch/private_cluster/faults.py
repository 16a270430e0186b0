"""Break a private cluster on purpose, and mend it: a node that dies, a controller that restarts."""

import signal

from benchmarks.errors import RequestError, nearest
from launch.private_cluster import daemons, processes
from launch.private_cluster.cluster import Cluster, known


def kill_node(name: str, node: str) -> int:
    """As if its power failed: slurmd, step daemons and tasks are killed. Returns how many processes that were."""
    cluster = _with_node(name, node)
    killed: set[tuple[int, int]] = set()
    while left := [process for process in daemons.running(cluster) if process.owner == node]:
        for process in left:
            processes.send(process, signal.SIGKILL)
            killed.add((process.pid, process.started))
    return len(killed)


def revive_node(name: str, node: str) -> None:
    """Start the node again, and wait until the controller would use it."""
    cluster = _with_node(name, node)
    if node not in daemons.owners(cluster):
        daemons.start_nodes(cluster, [node])


def stop_controller(name: str) -> None:
    """Stop slurmctld, which saves its state; jobs go on without it."""
    cluster = known(name)
    processes.end(
        lambda: [process for process in daemons.running(cluster) if process.owner == daemons.CONTROLLER],
        stop_seconds=CONTROLLER_STOP_SECONDS,
    )


def start_controller(name: str) -> None:
    """Start slurmctld where it was stopped, and wait until it answers."""
    cluster = known(name)
    if daemons.CONTROLLER not in daemons.owners(cluster):
        daemons.start_controller(cluster)


def restart_controller(name: str) -> None:
    """Stop and start slurmctld; it reads its configuration anew."""
    stop_controller(name)
    start_controller(name)


CONTROLLER_STOP_SECONDS = 30.0  # it must write down what jobs there are


def _with_node(name: str, node: str) -> Cluster:
    cluster = known(name)
    if node not in cluster.node_names:
        raise RequestError(
            f"the private cluster '{name}' has no node '{node}': {nearest(node, cluster.node_names)}",
            where=f"--node={node}",
        )
    return cluster
