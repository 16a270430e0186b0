"""The flags that choose among the runs of a folder. Importing this module defines them."""

from pathlib import Path

from absl import flags

from benchmarks.errors import RequestError

HEADING = "Which runs"
DEFAULT_RUNS = "results"

WHERE = flags.DEFINE_multi_string("where", [], "Which of them, such as dtype=bf16,fp8 or gpus>=64; all must hold.")
NEWEST = flags.DEFINE_integer("newest", None, "The newest N of them alone.", lower_bound=1)


def file_and_runs(arguments: list[str], command: str) -> tuple[Path, list[str]]:
    """The file to write and the runs that were named; where none was, some must be chosen."""
    usage = f"python launch/report.py {command} FILE RUN..., or --where=KEY=VALUE"
    if not arguments or not arguments[0]:
        raise RequestError("which file is to be written?", next_command=usage)
    chosen = bool(WHERE.value or NEWEST.value)
    if bool(arguments[1:]) == chosen:
        raise RequestError(
            "runs are named, or chosen with --where: not both" if chosen else "which runs?", next_command=usage
        )
    return Path(arguments[0]), arguments[1:]


def folder_of(name: str) -> Path:
    """An empty variable of a shell script: all runs are not what was asked for."""
    if not name:
        raise RequestError("the folder of the runs is empty text", next_command=f"{DEFAULT_RUNS}, or another folder")
    return Path(name)
