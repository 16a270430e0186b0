"""Start and stop a private Slurm cluster on this machine: real daemons, many nodes, simulated GPUs.

Examples:
  python launch/cluster.py up --nodes=4
      start the cluster 'dev'; then run.py --site=dev uses it
  python launch/cluster.py status
  python launch/cluster.py down
      stop the cluster and everything that runs on it
  python launch/cluster.py kill --node=node3
  python launch/cluster.py revive --node=node3
  python launch/cluster.py restart_controller
      break a part on purpose, to see how a run reacts

All files of a cluster are in $STEPMARK_HOME/clusters/<name>. This machine's own Slurm is neither read nor changed.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

from absl import flags

from benchmarks.errors import EXIT_FAILED, EXIT_VALID, RequestError, UnknownName
from benchmarks.job_record import SUBMITTED
from benchmarks.runs.runfolder import RunFolder
from benchmarks.text import first_few
from launch.cli.command import run_main
from launch.private_cluster import lifecycle
from launch.private_cluster.cluster import started_names
from launch.slurm.run_states import states
from launch.terminal import documents
from launch.terminal.output import document
from launch.terminal.progress import say

FLAGS = flags.FLAGS
flags.DEFINE_string("name", "dev", "Name of the cluster and of its site.")
flags.DEFINE_integer("nodes", 4, "Number of nodes.", 1, 32)
flags.DEFINE_integer("gpus_per_node", 8, "Simulated GPUs per node.", 0, 64)
flags.DEFINE_boolean("accounting", True, "Start slurmdbd, which sacct needs.")
flags.DEFINE_string("node", None, "Node to kill or revive.")


def main(argv: list[str]) -> int:
    name = " ".join(argv[1:])
    if name not in COMMANDS:
        what = f"unknown command '{name}'" if name else "a command is missing"
        raise UnknownName(what, name, COMMANDS, next_command="python launch/cluster.py up --nodes=4")
    return COMMANDS[name]()


def up() -> int:
    lifecycle.up(lifecycle.ClusterRequest(FLAGS.name, FLAGS.nodes, FLAGS.gpus_per_node, FLAGS.accounting), say)
    return status()


def down() -> int:
    jobs = lifecycle.cancel_jobs(FLAGS.name)
    for job, folder in jobs.items():
        say(f"job {job} was cancelled, because the cluster stops: {folder}")
    states(RunFolder(folder) for folder in jobs.values() if (folder / SUBMITTED).exists())  # while Slurm answers
    stopped = lifecycle.down(FLAGS.name, say)
    print(f"the private cluster '{FLAGS.name}' {'is down' if stopped else 'was not running'}")
    if not stopped:
        _print_others("down")
    document(documents.Cluster(name=FLAGS.name, up=False))
    return EXIT_VALID


def status() -> int:
    found = lifecycle.status(FLAGS.name)
    if found is None:
        print(f"the private cluster '{FLAGS.name}' is not running")
        if not _print_others("status"):
            print(f"  next:     python launch/cluster.py up --name={FLAGS.name}")
        document(documents.Cluster(name=FLAGS.name, up=False))
        return EXIT_FAILED
    files = found.cluster.files
    document(
        documents.Cluster(
            name=FLAGS.name,
            up=True,
            nodes=list(found.cluster.node_names),
            missing=found.missing,
            slurm_conf=str(files.slurm_conf),
            logs=str(files.logs),
        )
    )
    print(f"the private cluster '{FLAGS.name}' is running: {lifecycle.described(found.cluster)}")
    print(f"  tasks:    {found.tasks} processes of jobs")
    if found.missing:
        print(f"  missing:  {first_few(found.missing)}")
        dead = next((one for one in found.missing if one in found.cluster.node_names), None)
        way = f"revive --node={dead}" if dead else "down"
        print(f"  next:     python launch/cluster.py {way} --name={FLAGS.name}")
        return EXIT_FAILED
    names, name = found.cluster.node_names, "" if FLAGS.name == "dev" else f" --name={FLAGS.name}"
    print(f"  nodes:    {names[0]} to {names[-1]}")
    print(f"  use:      python launch/run.py --site={FLAGS.name} --nodes={found.cluster.nodes} ...")
    print(f"  by hand:  export SLURM_CONF={files.slurm_conf}     # then sinfo, squeue, sbatch")
    print(f"  logs:     {files.logs}")
    print(f"  stop:     python launch/cluster.py down{name}")
    return EXIT_VALID


def _print_others(command: str) -> bool:
    """Print the running clusters, for a user who forgot --name. Return whether there are any."""
    names = started_names()
    if names:
        print(f"  running:  {', '.join(names)}")
        print(f"  next:     python launch/cluster.py {command} --name={names[0]}")
    return bool(names)


def kill() -> int:
    killed = lifecycle.kill_node(FLAGS.name, _node())
    print(f"{FLAGS.node} is dead ({killed} processes killed); Slurm notices within 40 s")
    return EXIT_VALID


def revive() -> int:
    lifecycle.revive_node(FLAGS.name, _node())
    print(f"{FLAGS.node} is back")
    return EXIT_VALID


def restart_controller() -> int:
    lifecycle.restart_controller(FLAGS.name)
    print("the controller was restarted")
    return EXIT_VALID


def _node() -> str:
    if FLAGS.node is None:
        raise RequestError("--node is missing", where="--node", next_command="--node=node2")
    node: str = FLAGS.node
    return node


COMMANDS = {
    "up": up,
    "down": down,
    "status": status,
    "kill": kill,
    "revive": revive,
    "restart_controller": restart_controller,
}

if __name__ == "__main__":
    run_main(main)
