"""Read and write the record of a sweep or a night, and read the results of its runs."""

from pathlib import Path
from typing import TypeVar

from benchmarks import files
from benchmarks.errors import SAME_COMMAND, RequestError, RunError
from benchmarks.runs.finished_run import RUNNING, FinishedRun, read_finished_run
from benchmarks.runs.runfolder import RunFolder, write_atomically
from benchmarks.text import reasons_text, seconds_text
from benchmarks.values import Value, json_text

Record = TypeVar("Record", bound=Value)
SCHEMA_VERSION = 1


def result_of(folder: Path) -> FinishedRun | None:
    """Return the result in a run folder; None if there is no readable result."""
    try:
        found = read_finished_run(RunFolder(folder), folder.name)
    except RequestError:
        return None
    return None if found.status == RUNNING else found


def end_text(result: FinishedRun | None) -> str:
    if result is None:
        return "ended without a result"
    if result.status != "valid":
        return f"{result.status}: {reasons_text(result.reasons)}"
    seconds = result.metrics.seconds_per_step
    return "valid" if seconds is None else f"valid, {seconds_text(seconds)}/step"


def write_record(path: Path, record: Value, what: str) -> None:
    """Write the record. Callers write it before each start and after each end, so a killed launcher can resume."""
    try:
        write_atomically(path, json_text(record).encode())
    except RunError as error:
        raise RunError(
            f"the record of the {what} could not be written: {error.what}",
            where=error.where,
            why="the previous record is kept and lists every run that was started; free some space, then resume",
            next_command=SAME_COMMAND,
        ) from None


def read_record(path: Path, kind: type[Record], what: str, next_command: str) -> Record:
    try:
        found = files.read_json(path, kind)
        if found.schema_version != SCHEMA_VERSION:  # type: ignore[attr-defined]
            raise ValueError(f"the version of the record is not {SCHEMA_VERSION}")
    except (OSError, ValueError) as error:
        what = f"the record of the {what} cannot be read: {error}"
        raise RequestError(what, where=str(path), next_command=next_command) from None
    return found
