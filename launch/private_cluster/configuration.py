"""A private cluster's configuration files, as text. Pure: nothing is read, written or started here."""

from pathlib import Path

import yaml

from launch.private_cluster.cluster import Cluster

NODES_OF_A_SMALL_CLUSTER = 32
PARTITION = "batch"
SMALL_PARTITION = "small"  # the first node alone, so that a request can be larger than its partition
MAX_TIME = "2:00:00"
SITE_TIME = "0:30:00"
SITE_WARN_SECONDS = 10
KILL_WAIT_SECONDS = 5
SAMPLING_SECONDS = 1
GPU_TYPE = "h100"
DATABASE_NAME = "slurm_acct_db"
DATABASE_USER = "slurm"


class Timeouts:
    """Short, so that a dead node is noticed within 40 s and a requeued job starts again soon."""

    slurmd = 20
    message = 10
    credential = 15  # Slurm holds a requeued job back until its first credential has run out


class LargeTimeouts(Timeouts):
    """Longer, because hundreds of daemons share a few CPUs."""

    slurmd = 120
    message = 60
    credential = 120


def timeouts(cluster: Cluster) -> type[Timeouts]:
    return Timeouts if cluster.nodes <= NODES_OF_A_SMALL_CLUSTER else LargeTimeouts


def texts(cluster: Cluster, machine_hosts: str, password: str) -> dict[Path, str]:
    """Every configuration file of the cluster."""
    files = cluster.files
    return {
        files.slurm_conf: slurm_conf(cluster),
        files.daemons_conf: daemons_conf(cluster),
        files.settings / "gres.conf": gres_conf(cluster),
        files.settings / "cgroup.conf": cgroup_conf(cluster),
        files.settings / "slurmdbd.conf": slurmdbd_conf(cluster, password),
        files.settings / "plugstack.conf": "",  # else the one in /etc would be read
        files.hosts: hosts(cluster, machine_hosts),
    }


def slurm_conf(cluster: Cluster) -> str:
    parts = (_controller(cluster), _files(cluster), _limits(cluster), _accounting(cluster), _nodes(cluster))
    return "\n".join(line for part in parts for line in part) + "\n"


def daemons_conf(cluster: Cluster) -> str:
    """Kept from a person's srun, whose host name may be no loopback address: steps could not call it back."""
    listen = "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n" if cluster.listens_on_loopback else ""
    return f"include {cluster.files.slurm_conf}\n{listen}"


def _controller(cluster: Cluster) -> list[str]:
    limit = timeouts(cluster)
    return [
        f"ClusterName={cluster.name}",
        f"SlurmctldHost={cluster.host}(127.0.0.1)",
        f"SlurmctldPort={cluster.ports.controller}",
        f"SlurmUser={cluster.user}",
        f"SlurmdUser={cluster.user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={cluster.files.munge_socket},cred_expire={limit.credential}",
        "CredType=cred/munge",
        f"FirstJobId={cluster.first_job_id}",
        "ReturnToService=2",  # a node that was dead is used again as soon as it reports
        "SlurmctldTimeout=30",
        f"SlurmdTimeout={limit.slurmd}",
        f"MessageTimeout={limit.message}",
        f"KillWait={KILL_WAIT_SECONDS}",
        "OverTimeLimit=0",
        "InactiveLimit=0",
        "MinJobAge=300",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "ScronParameters=enable",
        "MpiDefault=none",
        "MailProg=/bin/true",
    ]


def _files(cluster: Cluster) -> list[str]:
    files = cluster.files
    return [
        f"StateSaveLocation={files.state}",
        f"SlurmctldPidFile={files.pids}/slurmctld",
        f"SlurmctldLogFile={files.log('slurmctld')}",
        f"SlurmdPidFile={files.pids}/%n",
        f"SlurmdLogFile={files.log('%n')}",
        f"SlurmdSpoolDir={files.spool}/%n",
        f"TmpFS={files.folder}/tmp/%n",  # PMIx keeps its files there, one folder a node
        f"PlugStackConfig={files.settings}/plugstack.conf",
    ]


def _limits(cluster: Cluster) -> list[str]:
    kernel = cluster.memory_limit == "kernel"
    return [
        "ProctrackType=proctrack/linuxproc",
        f"TaskPlugin=task/{'cgroup' if kernel else 'none'}",
        "JobAcctGatherType=jobacct_gather/linux",
        f"JobAcctGatherFrequency={5 if kernel else SAMPLING_SECONDS}",
        # Not beside the kernel's limit: it would come first, and call the job FAILED.
        *([] if kernel else ["JobAcctGatherParams=OverMemoryKill"]),
    ]


def _accounting(cluster: Cluster) -> list[str]:
    if not cluster.accounting:
        return [
            "AccountingStorageType=accounting_storage/none",
            "JobCompType=jobcomp/filetxt",
            f"JobCompLoc={cluster.files.logs}/jobs.txt",
        ]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={cluster.ports.accounting}",
        # The socket once more: without it slurmctld asks the munge of the machine, and dies with "no TRES".
        f"AccountingStoragePass={cluster.files.munge_socket}",
        f"AccountingStorageTRES={'gres/gpu' if cluster.gpus_per_node else 'billing'}",
        "AccountingStoreFlags=job_comment,job_script",
        "JobCompType=jobcomp/none",
    ]


def _nodes(cluster: Cluster) -> list[str]:
    gres = f" Gres=gpu:{GPU_TYPE}:{cluster.gpus_per_node}" if cluster.gpus_per_node else ""
    names = cluster.node_names
    shared = (
        f"NodeHostname={cluster.host} NodeAddr=127.0.0.1 CPUs={cluster.cpus_per_node} "
        f"RealMemory={cluster.memory_mb_per_node}{gres}"
    )
    return [
        *(["GresTypes=gpu"] if gres else []),
        "SlurmdParameters=config_overrides",  # a node claims more CPUs than this machine has
        f"DefMemPerCPU={max(1, cluster.memory_mb_per_node // cluster.cpus_per_node)}",
        *(f"NodeName={name} Port={cluster.ports.first_node + i} {shared}" for i, name in enumerate(names)),
        f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime={MAX_TIME} State=UP",
        f"PartitionName={SMALL_PARTITION} Nodes={names[0]} MaxTime={MAX_TIME} State=UP",
    ]


def gres_conf(cluster: Cluster) -> str:
    """The number in a device's name becomes the number in CUDA_VISIBLE_DEVICES."""
    devices = f"{cluster.files.devices}/nvidia[0-{cluster.gpus_per_node - 1}]"
    line = f"Name=gpu Type={GPU_TYPE} File={devices}\n" if cluster.gpus_per_node else ""
    return "AutoDetect=off\n" + line


def cgroup_conf(cluster: Cluster) -> str:
    if cluster.memory_limit != "kernel":
        return ""
    return "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\nConstrainSwapSpace=no\n"


def slurmdbd_conf(cluster: Cluster, password: str) -> str:
    files = cluster.files
    return "\n".join(
        (
            *(["CommunicationParameters=NoInAddrAny"] if cluster.listens_on_loopback else []),
            "AuthType=auth/munge",
            f"AuthInfo=socket={files.munge_socket}",
            f"DbdHost={cluster.host}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={cluster.ports.accounting}",
            f"SlurmUser={cluster.user}",
            f"LogFile={files.log('slurmdbd')}",
            f"PidFile={files.pids}/slurmdbd",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",  # by the socket that MYSQL_UNIX_PORT names: the database opens no port
            f"StorageUser={DATABASE_USER}",
            f"StoragePass={password}",
            f"StorageLoc={DATABASE_NAME}",
            "",
        )
    )


def database_sql(system_tables: str, password: str) -> str:
    """What mariadb-install-db does, less the help tables; then the one account, which owns the one database."""
    account = f"'{DATABASE_USER}'@'localhost'"
    return "\n".join(
        (
            "create database mysql;",
            "use mysql;",
            system_tables,
            "flush privileges;",
            f"create database {DATABASE_NAME};",
            f"create user {account} identified by '{password}';",
            f"grant all on {DATABASE_NAME}.* to {account};",
            "",
        )
    )


def hosts(cluster: Cluster, machine_hosts: str) -> str:
    """The nodes' names first, so that they win over equal ones of the machine; then what the machine knows.

    All are 127.0.0.1: connections within a machine come from there, and srun is called back where it came from.
    """
    names = ["localhost", *(f"node{number}" for number in range(1, cluster.nodes + 1)), cluster.host]
    return "\n".join([*(f"127.0.0.1 {name}" for name in names), machine_hosts])


def site(cluster: Cluster, date: str) -> str:
    """The row that makes the cluster known to launch/run.py as --site."""
    options = {
        "time": SITE_TIME,
        "memory": "0",
        "singleton": True,
        "warn_seconds": SITE_WARN_SECONDS,
    }
    row = {
        "name": cluster.name,
        "kind": "slurm",
        "title": f"private Slurm cluster of {cluster.nodes} nodes on this machine",
        "runtime": "venv",
        "source": f"launch/cluster.py up --name={cluster.name}",
        "date": date,
        "slurm": {
            "configuration": str(cluster.files.slurm_conf),
            "shared_folders": ["/"],
            "hardware": ["cpu"],
            "options": options,
        },
    }
    text: str = yaml.safe_dump(row, sort_keys=False)
    return text
