"""What a job asks of Slurm: the site's options, then the person's shell, then the flags.

Whatever contradicts what Stepmark itself decides about a job is refused here, and says what to use instead. It reads
nothing but the files of nodes that --nodelist and --exclude name.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.errors import RequestError
from benchmarks.values import JobOptions, Site
from launch.slurm.parsing import duration_seconds, node_names

ADDITIONAL = "ADDITIONAL_SLURM_PARAMS"
# Variables of sbatch that people are used to set in their shell -> the option they mean.
SHELL_VARIABLES = {
    "SBATCH_PARTITION": "partition",
    "SBATCH_ACCOUNT": "account",
    "SBATCH_QOS": "qos",
    "SBATCH_TIMELIMIT": "time",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_GPUS_PER_NODE": "gpus",
    "SBATCH_EXCLUSIVE": "exclusive",
}
ADOPTED_AS = {"gpus": "gpus_per_node", "exclusive": True}  # how GPUs are asked for; how many is the benchmark's
# Beginnings of the variables that sbatch and srun obey over the script they are given.
STEERING_PREFIXES = ("SBATCH_", "SALLOC_", "SRUN_", "SLURM_")
KEPT_VARIABLES = ("SLURM_CONF",)  # which cluster is asked: no option of a job

# Options of sbatch that are options of Stepmark -> the field of JobOptions.
FIELDS = {
    **{name: name for name in ("partition", "account", "qos", "time", "reservation", "constraint", "nodelist")},
    **{name: name for name in ("exclude", "segment", "nice", "comment", "exclusive")},
    "mem": "memory",
}

FLAG_NAMES = {"memory": "mem", "gpus": "gpu_request"}  # fields of JobOptions whose flags have other names

# Options of sbatch that Stepmark fills itself.
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
    """The options of a job. `typed` are flags by the field they set, and `slurm_arg`, a list (job_flags.typed)."""
    if site.slurm is None:
        raise _no_slurm(site, typed)
    options = site.slurm.options
    options = _with_arguments(
        msgspec.structs.replace(options, arguments=[]), options.arguments, f"site {site.name}: arguments"
    )
    seconds_of(options.time, f"site {site.name}: slurm.options")
    adopted: dict[str, Any] = {field: shell[name] for name, field in SHELL_VARIABLES.items() if shell.get(name)}
    adopted |= {field: value for field, value in ADOPTED_AS.items() if field in adopted}
    options = _replaced(options, adopted, "the shell's SBATCH_* variables")
    options = _with_arguments(options, shell.get(ADDITIONAL, "").split(";"), ADDITIONAL)
    flags = {name: value for name, value in typed.items() if name != "slurm_arg"}
    options = _replaced(_with_arguments(options, typed.get("slurm_arg", []), "--slurm_arg"), flags, "the flags")
    file = Path(options.exclude) if options.exclude and "/" in options.exclude else None
    if file is not None and file.is_file() and not file.read_bytes().split():
        # A preflight without a failing node: Slurm would refuse an empty file.
        return msgspec.structs.replace(options, exclude=None)
    return options


def _no_slurm(site: Site, typed: Mapping[str, Any]) -> RequestError:
    names = ", ".join(f"--{flag_of(name)}" for name in typed) or "options of a job"
    return RequestError(
        f"{names}: site '{site.name}' has no Slurm",
        where=f"--site={site.name}",
        why="these are options of a job in a queue",
        next_command="leave them out, or --site with the name of a cluster; python launch/run.py --list",
    )


def refuse_without_slurm(site: Site, typed: Mapping[str, Any]) -> None:
    """On a site without a queue, the flags of a job are a mistake."""
    if site.slurm is None and typed:
        raise _no_slurm(site, typed)


def flag_of(field: str) -> str:
    """The flag that sets a field of JobOptions."""
    return FLAG_NAMES.get(field, field)


def _replaced(options: JobOptions, changes: Mapping[str, Any], where: str) -> JobOptions:
    changed = msgspec.structs.replace(options, **changes)
    seconds_of(changed.time, where)
    return changed


# --- the person's shell -------------------------------------------------------------------------


def kept_from_job(name: str) -> bool:
    """Variables that would override the job script's own lines, unseen by a reader of it."""
    return name.startswith(STEERING_PREFIXES) and name not in KEPT_VARIABLES


def not_adopted(shell: Mapping[str, str]) -> list[str]:
    """Those of them whose meaning is lost, since no option was taken from them; for a note."""
    return sorted(name for name in shell if kept_from_job(name) and name not in SHELL_VARIABLES)


# --- arguments as sbatch takes them -------------------------------------------------------------


def _with_arguments(options: JobOptions, texts: Iterable[str], where: str) -> JobOptions:
    """Each `key=value`, `--key=value` or bare key: as the option it names, or passed on."""
    fields: dict[str, Any] = {}
    kept = {key_of(argument): argument for argument in options.arguments}
    for text in texts:
        if not text.strip():
            continue
        key, value = _split(text, where)
        if key in FIELDS:
            fields[FIELDS[key]] = _field_value(key, value, where)
        else:
            kept[key] = f"--{key}" if value is None else f"--{key}={value}"
    return _replaced(options, {**fields, "arguments": list(kept.values())}, where)


def key_of(argument: str) -> str:
    """The option's name in an argument such as --switches=1."""
    return argument.removeprefix("--").partition("=")[0]


def _split(text: str, where: str) -> tuple[str, str | None]:
    name, equals, value = text.strip().partition("=")
    key = name.removeprefix("--").replace("_", "-")
    if not re.fullmatch(r"[a-z][a-z0-9-]+", key):
        raise RequestError(
            f"'{text.strip()}' is not an option of sbatch",
            where=where,
            why="key=value, --key=value or a bare key is expected, with the option's long name",
            next_command="--slurm_arg=switches=1",
        )
    if key not in FIELDS:
        # sbatch takes any beginning of a name that means one option alone: --outp is --output.
        meant = key if key in DECIDED else next((name for name in DECIDED if name.startswith(key)), None)
        if meant is not None:
            raise RequestError(
                f"--{meant} is decided by Stepmark",
                where=where,
                why="it follows from the benchmark, the flags of run.py and the site's file",
                next_command="python launch/run.py --help",
            )
        full = next((name for name in (*FIELDS, "dependency") if name.startswith(key)), key)
        if full != key:
            raise RequestError(f"'{key}' is short for --{full}", where=where, next_command=f"--slurm_arg={full}=...")
    return key, value.strip() if equals else None


def _field_value(key: str, value: str | None, where: str) -> Any:
    if key == "nice" and value is None:
        return 100  # what sbatch takes it for
    if key == "exclusive" and not value:
        return True
    if key == "exclusive" or not value:
        needs = "takes no value: a measured node is shared with nobody" if value else "needs a value"
        raise RequestError(f"{key} {needs}", where=where, next_command=f"--{flag_of(FIELDS[key])}")
    if key == "segment":
        return segment_of(value, where)
    return whole_number(key, value, where) if key == "nice" else value


def segment_of(value: str, where: str) -> int | str:
    """Nodes, or none: a Slurm without block topology may not know the option."""
    return value if value == "none" else whole_number("segment", value, where)


def whole_number(key: str, value: str, where: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", value):
        raise RequestError(f"{key}={value}: a whole number is expected", where=where)
    return int(value)


# --- time limits -------------------------------------------------------------------------------


def seconds_of(time: str, where: str = "--time") -> int:
    """A time limit as Slurm reads it."""
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


def named(text: str | None) -> list[str]:
    """The nodes of a list of Slurm's, or with a slash in it a file of names; none where nothing is named."""
    if text is None or "/" not in text:
        return node_names(text or "")
    try:
        words = Path(text).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError("the list of nodes cannot be read", where=text, why=str(error)) from None
    return [name for word in words for name in node_names(word)]
