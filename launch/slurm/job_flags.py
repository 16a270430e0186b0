"""The flags of a job, for every launch script that submits one. Importing this module defines them."""

from pathlib import Path
from typing import Any

from absl import flags

HEADING = "Flags of a job, on a site with Slurm (what they leave open comes from the site)"

_FIELDS = {"mem": "memory", "gpu_request": "gpus"}  # flags whose name differs from their field of JobOptions

flags.DEFINE_string("partition", None, "The partition (queue).")
flags.DEFINE_string("account", None, "The account that pays.")
flags.DEFINE_string("qos", None, "The quality of service.")
flags.DEFINE_string("time", None, "The time limit: minutes, HH:MM:SS or D-HH:MM:SS.")
flags.DEFINE_string("reservation", None, "A reservation of nodes.")
flags.DEFINE_string("constraint", None, "Features that the nodes must have, such as 'h100&ib'.")
flags.DEFINE_string("nodelist", None, "Nodes that must be among the job's, such as node[1-4].")
flags.DEFINE_string("exclude", None, "Nodes to leave out; or a file that lists them, with a slash in its name.")
flags.DEFINE_string(
    "segment", None, "Nodes of one block of the network that a part of the job must have; none: do not ask Slurm."
)
flags.register_validator(  # type: ignore[no-untyped-call]
    "segment", lambda value: value in (None, "none") or value.isdecimal(), "a number of nodes, or none"
)
flags.DEFINE_integer("nice", None, "How far to let other jobs go first.")
flags.DEFINE_string("comment", None, "Words of your own, kept with the job after the run's name.")
flags.DEFINE_boolean("exclusive", None, "Whole nodes, shared with nobody.")
flags.DEFINE_boolean("singleton", None, "Wait until no other run of yours is on the cluster.")
flags.DEFINE_boolean("check", None, "First, on one node: import the framework, look for the GPUs, build the run.")
flags.DEFINE_boolean("requeue", None, "After a node has failed: start again, as another attempt of the same run.")
flags.DEFINE_string("mem", None, "The memory of a node; 0: all of it.")
flags.DEFINE_enum("gpu_request", None, ["gres", "gpus_per_node", "none"], "How a node's GPUs are asked for.")
flags.DEFINE_string("mpi", None, "How srun brings processes together, such as pmix.")
flags.DEFINE_multi_string(
    "slurm_arg", [], "Anything else, as sbatch takes it: switches=1, or a bare contiguous; repeat for more."
)


def typed() -> dict[str, Any]:
    """Return the typed flags by their field of JobOptions, and slurm_arg, for options.choose."""
    own = flags.FLAGS.get_flags_for_module(__name__)
    given = {flag.name: flag.value for flag in own if flag.present and flag.value is not None}
    for name in ("nodelist", "exclude"):  # sbatch reads a file of names in the run's folder
        if "/" in given.get(name, ""):
            given[name] = str(Path(given[name]).absolute())
    if given.get("segment", "none") != "none":
        given["segment"] = int(given["segment"])
    return {_FIELDS.get(name, name): value for name, value in given.items()}
