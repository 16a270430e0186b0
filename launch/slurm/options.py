"""The Slurm options of a job: the site's options, then the user's shell, then the flags.

This module refuses options that contradict an option of Stepmark's own, and names the alternative. It reads only the
files of nodes that --nodelist and --exclude name.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.errors import RequestError
from benchmarks.values import JobOptions, Site
from launch.slurm.parsing import duration_seconds, node_names

# sbatch variables that users often set in their shell -> the field of JobOptions.
SHELL_VARIABLES = {
    "SBATCH_PARTITION": "partition",
    "SBATCH_ACCOUNT": "account",
    "SBATCH_QOS": "qos",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_CONSTRAINT": "constraint",
}
# Prefixes of the variables that override the script or the arguments of Slurm's commands.
STEERING_PREFIXES = ("SBATCH_", "SALLOC_", "SRUN_", "SLURM_", "SQUEUE_", "SCANCEL_", "SACCT_", "SINFO_", "SCONTROL_")
KEPT_VARIABLES = ("SLURM_CONF",)  # selects the cluster and sets no option of a job

# Options of sbatch that Stepmark offers as flags with the same name.
OWN_FLAGS = (
    "partition", "account", "qos", "time", "reservation", "constraint", "nodelist", "exclude", "segment", "nice",
    "comment", "exclusive", "mem",
)  # fmt: skip
FLAG_NAMES = {"memory": "mem", "gpus": "gpu_request"}  # fields of JobOptions whose flags have other names

# Options of sbatch that Stepmark sets or does not support.
DECIDED = (
    "nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "ntasks-per-core", "ntasks-per-gpu",
    "ntasks-per-socket", "distribution", "overcommit", "oversubscribe", "use-min-nodes", "output", "error", "input",
    "chdir", "gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "mem-per-cpu", "mem-per-gpu",
    "requeue", "no-requeue", "export", "export-file", "get-user-env", "propagate", "container", "container-image",
    "container-mounts", "wait", "parsable", "quiet", "verbose", "array", "wrap", "clusters", "uid", "gid", "help",
    "usage", "version", "test-only", "job-name", "open-mode", "signal", "nodefile",
)  # fmt: skip


# --- choosing -----------------------------------------------------------------------------------


def choose(site: Site, typed: Mapping[str, Any], shell: Mapping[str, str]) -> JobOptions:
    """Return the options of a job. `typed` is what job_flags.typed returns: fields of JobOptions, and slurm_arg."""
    if site.slurm is None:
        raise _no_slurm(site, typed)
    texts = [(text, f"site {site.name}: arguments") for text in site.slurm.options.arguments]
    texts += [(text, "--slurm_arg") for text in typed.get("slurm_arg", [])]
    arguments = {key_of(argument): argument for argument in (_argument(text, where) for text, where in texts)}
    adopted = {field: shell[name] for name, field in SHELL_VARIABLES.items() if shell.get(name)}
    changes = {**adopted, **{name: value for name, value in typed.items() if name != "slurm_arg"}}
    options = msgspec.structs.replace(site.slurm.options, **{**changes, "arguments": list(arguments.values())})
    seconds_of(options.time)
    file = Path(options.exclude) if options.exclude and "/" in options.exclude else None
    if file is not None and file.is_file() and not file.read_bytes().split():
        # A preflight in which no node failed writes an empty file, which Slurm would refuse.
        return msgspec.structs.replace(options, exclude=None)
    return options


def _no_slurm(site: Site, typed: Mapping[str, Any]) -> RequestError:
    names = ", ".join(f"--{flag_of(name)}" for name in typed) or "job options"
    return RequestError(
        f"{names} cannot be used: site '{site.name}' has no Slurm",
        where=f"--site={site.name}",
        why="remove these flags, or pass --site=NAME with a cluster",
        next_command="python launch/run.py --list",
    )


def refuse_without_slurm(site: Site, typed: Mapping[str, Any]) -> None:
    """Refuse job flags on a site without Slurm."""
    if site.slurm is None and typed:
        raise _no_slurm(site, typed)


def flag_of(field: str) -> str:
    """Return the flag that sets a field of JobOptions."""
    return FLAG_NAMES.get(field, field)


# --- the user's shell ---------------------------------------------------------------------------


def kept_from_job(name: str) -> bool:
    """Return whether a variable of the shell could override lines of the job script."""
    return name.startswith(STEERING_PREFIXES) and name not in KEPT_VARIABLES


def not_adopted(shell: Mapping[str, str]) -> list[str]:
    """Return the shell's variables that have no effect on the job, for a note."""
    return sorted(name for name in shell if kept_from_job(name) and name not in SHELL_VARIABLES)


# --- arguments of sbatch ------------------------------------------------------------------------


def key_of(argument: str) -> str:
    """Return the option's name in an argument such as --switches=1."""
    return argument.removeprefix("--").partition("=")[0]


def _argument(text: str, where: str) -> str:
    """Return an sbatch option from `key=value`, `--key=value` or a key without a value."""
    name, equals, value = text.strip().partition("=")
    key = name.removeprefix("--").replace("_", "-")
    if not re.fullmatch(r"[a-z][a-z0-9-]+", key):
        raise RequestError(
            f"'{text.strip()}' is not an option of sbatch",
            where=where,
            why="use key=value, --key=value or key, with the long name of the option",
            next_command="python launch/run.py --help",
        )
    # sbatch accepts any unambiguous prefix of a name: --outp is --output.
    meant = next((name for name in (*OWN_FLAGS, *DECIDED) if name.startswith(key)), None)
    if meant in OWN_FLAGS:
        raise RequestError(
            f"--{meant} is a separate flag", where=where, next_command=f"--slurm_arg={name} --{meant}{equals}{value}"
        )
    if meant is not None:
        raise RequestError(
            f"Stepmark sets --{meant}",
            where=where,
            why="it depends on the benchmark, the flags of run.py and the site's file",
            next_command="python launch/run.py --help",
        )
    return f"--{key}{equals}{value.strip()}"


# --- time limits -------------------------------------------------------------------------------


def seconds_of(time: str, where: str = "--time") -> int:
    """Return the seconds of a time limit in Slurm's notation."""
    seconds = duration_seconds(time)
    if not seconds:
        raise RequestError(
            f"--time={time} is not a time limit",
            where=where,
            why="Slurm reads minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS, and a job needs a limit",
            next_command="--time=1:00:00",
        )
    return seconds


# --- lists of nodes -----------------------------------------------------------------------------


def parse_node_list(text: str | None) -> list[str]:
    """Return the nodes in a list of Slurm. If the text has a slash, it is the path of a file that lists the nodes."""
    if text is None or "/" not in text:
        return node_names(text or "")
    try:
        words = Path(text).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError("the list of nodes cannot be read", where=text, why=str(error)) from None
    return [name for word in words for name in node_names(word)]
