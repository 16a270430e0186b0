"""The text of a private cluster's configuration files. This module only reads the templates."""

from pathlib import Path
from typing import Any

import yaml

from launch.private_cluster.cluster import Cluster
from launch.slurm.job_script import fill

DATABASE_NAME = "slurm_acct_db"
DATABASE_USER = "slurm"
CGROUP_CONF = (
    "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\nConstrainSwapSpace=no\n"
)


def texts(cluster: Cluster, machine_hosts: str, password: str) -> dict[Path, str]:
    """Return the text of each configuration file of the cluster, by path."""
    files = cluster.files
    # Only for the daemons: with it, steps could not reach the user's srun if the host name is not a loopback address.
    listen = "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n"
    # The number in a device's name becomes the number in CUDA_VISIBLE_DEVICES.
    devices = f"Name=gpu Type=h100 File={files.devices}/nvidia[0-{cluster.gpus_per_node - 1}]\n"
    return {
        files.slurm_conf: slurm_conf(cluster),
        files.daemons_conf: f"include {files.slurm_conf}\n{listen}",
        files.settings / "gres.conf": "AutoDetect=off\n" + (devices if cluster.gpus_per_node else ""),
        files.settings / "cgroup.conf": CGROUP_CONF if cluster.memory_limit == "kernel" else "",
        files.settings / "slurmdbd.conf": _filled("slurmdbd.conf.j2", cluster, password=password),
        files.settings / "plugstack.conf": "",  # otherwise Slurm would read the file in /etc
        files.hosts: hosts(cluster, machine_hosts),
    }


def slurm_conf(cluster: Cluster) -> str:
    return _filled("slurm.conf.j2", cluster)


def _filled(template: str, cluster: Cluster, **values: Any) -> str:
    database = {"database_name": DATABASE_NAME, "database_user": DATABASE_USER}
    return fill(Path(__file__).with_name(template), cluster=cluster, files=cluster.files, **database, **values)


def database_sql(system_tables: str, password: str) -> str:
    """Return SQL that creates the system tables, the accounting database and the account that owns it."""
    account = f"'{DATABASE_USER}'@'localhost'"
    return f"""\
create database mysql;
use mysql;
{system_tables}
flush privileges;
create database {DATABASE_NAME};
create user {account} identified by '{password}';
grant all on {DATABASE_NAME}.* to {account};
"""


def hosts(cluster: Cluster, machine_hosts: str) -> str:
    """Return the text of /etc/hosts: first the nodes, then the machine's own hosts, so that the nodes have priority.

    All nodes have the address 127.0.0.1, from which local connections come and at which Slurm calls srun back.
    """
    names = ["localhost", *cluster.node_names, cluster.host]
    return "\n".join([*(f"127.0.0.1 {name}" for name in names), machine_hosts])


SOURCE = "launch/cluster.py up --name={}"  # the source of a site; a file with another source belongs to the user


def site(cluster: Cluster, date: str) -> str:
    """Return the text of the site's file, which lets run.py use the cluster as --site."""
    row = {
        "name": cluster.name,
        "kind": "slurm",
        "title": f"private Slurm cluster of {cluster.nodes} nodes on this machine",
        "runtime": "venv",
        "source": SOURCE.format(cluster.name),
        "date": date,
        "slurm": {
            "configuration": str(cluster.files.slurm_conf),
            "shared_folders": ["/"],
            "hardware": ["cpu"],
            "options": {"time": "0:30:00", "memory": "0", "singleton": True, "warn_seconds": 10},
        },
    }
    text: str = yaml.safe_dump(row, sort_keys=False)
    return text
