"""The command line flags for a job's options. Importing this module defines them for a command."""

from pathlib import Path
from typing import Any

from absl import flags

HEADING = "Slurm job flags (default: from the site)"

_FIELDS = {"mem": "memory", "gpu_request": "gpus"}  # flags whose name differs from their field of JobOptions

flags.DEFINE_string("partition", None, "Partition (queue).")
flags.DEFINE_string("account", None, "Account to charge.")
flags.DEFINE_string("qos", None, "Quality of service.")
flags.DEFINE_string("time", None, "Time limit: minutes, HH:MM:SS or D-HH:MM:SS.")
flags.DEFINE_string("reservation", None, "Reservation of nodes.")
flags.DEFINE_string("constraint", None, "Node features that the job needs, such as 'h100&ib'.")
flags.DEFINE_string("nodelist", None, "Nodes that the job must have, such as node[1-4].")
flags.DEFINE_string("exclude", None, "Nodes to exclude, or the path of a file that lists them (with a slash).")
flags.DEFINE_string("segment", None, "Number of nodes that must be in one network block; `none` requests no block.")
flags.register_validator(  # type: ignore[no-untyped-call]
    "segment", lambda value: value in (None, "none") or value.isdecimal(), "must be a number, or the word none"
)
flags.DEFINE_integer("nice", None, "Lower the priority by this number.")
flags.DEFINE_string("comment", None, "Text that Slurm stores with the job, after the run's name.")
flags.DEFINE_boolean("exclusive", None, "Do not share the nodes with other jobs.")
flags.DEFINE_boolean("singleton", None, "Wait until none of your other runs is on the cluster.")
flags.DEFINE_boolean("check", None, "Check the framework, the GPUs and the request on one node first.")
flags.DEFINE_boolean("requeue", None, "Start another attempt of the run after a node failure.")
flags.DEFINE_string("mem", None, "Memory per node; 0: all memory of the node.")
flags.DEFINE_enum("gpu_request", None, ["gres", "gpus_per_node", "none"], "How the job requests the GPUs of a node.")
flags.DEFINE_string("mpi", None, "MPI type of srun, such as pmix.")
flags.DEFINE_multi_string(
    "slurm_arg", [], "Any other option of sbatch, such as switches=1 or contiguous; repeatable."
)


def typed() -> dict[str, Any]:
    """Return field of JobOptions -> value for the flags that the user passed, and slurm_arg, for options.choose."""
    own = flags.FLAGS.get_flags_for_module(__name__)
    given = {flag.name: flag.value for flag in own if flag.present and flag.value is not None}
    for name in ("nodelist", "exclude"):  # sbatch runs in the run's folder, so a file's path must be absolute
        if "/" in given.get(name, ""):
            given[name] = str(Path(given[name]).absolute())
    if given.get("segment", "none") != "none":
        given["segment"] = int(given["segment"])
    return {_FIELDS.get(name, name): value for name, value in given.items()}
