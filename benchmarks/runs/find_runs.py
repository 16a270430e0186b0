"""The runs of a folder, and a run by a part of its name."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from benchmarks.errors import RequestError
from benchmarks.runs.runfolder import BENCHMARK, RUN_ID, RunFolder
from benchmarks.runs.short_names import short_names
from benchmarks.text import some

MOST_OFFERED = 8  # runs that one name may mean; the newest


def find_runs(output_dir: Path) -> list[RunFolder]:
    """The runs in a folder, the oldest first; their names begin with the time they were made."""
    if not output_dir.is_dir():
        raise RequestError(
            "there is no such folder of runs",
            where=str(output_dir),
            next_command="--output_dir=DIR with the folder that was given to run.py",
        )
    with os.scandir(output_dir) as entries:
        found = [Path(entry.path) for entry in entries if entry.is_dir()]
    return [RunFolder(path) for path in sorted(found) if _may_be_run(path)]


def _may_be_run(path: Path) -> bool:
    """Also where nobody can look: the row of such a run says why."""
    try:
        return (path / BENCHMARK).is_file()
    except OSError:
        return True


def find_run(name: str, output_dir: Path) -> RunFolder:
    """A run by its folder, or by a part of its name that no other run has."""
    if (Path(name) / BENCHMARK).is_file():
        return RunFolder(Path(name))
    found = _run_called(name, find_runs(output_dir))
    if found is None:
        raise _not_one(f"'{name}' is no run", output_dir)
    return found


def place_of(name: str, output_dir: Path) -> Path:
    """A file or folder; else the run that has this in its name, where one alone has it."""
    path = Path(name)
    try:
        if path.exists() or not output_dir.is_dir():
            return path
    except OSError:  # whoever reads it says why it cannot be read
        return path
    found = _run_called(name, find_runs(output_dir))
    return found.path if found else path


def _run_called(name: str, runs: list[RunFolder]) -> RunFolder | None:
    fitting = [folder for folder in runs if name == folder.run_id]
    fitting = fitting or [folder for folder in runs if name in folder.run_id]
    # Tables call a renamed run by its folder, pages by the name that its record has.
    renamed = (folder for folder in runs if not RUN_ID.search(folder.run_id))
    fitting = fitting or [folder for folder in renamed if name in folder.recorded_run_id()]
    if len(fitting) > 1:
        short = short_names((folder.run_id for folder in fitting), {folder.run_id for folder in runs})
        what = f"'{name}' is in the names of {len(fitting)} runs: {some(list(short.values()))}"
        raise _not_one(what, fitting[0].path.parent, list(short.values())[-MOST_OFFERED:])
    return next(iter(fitting), None)


def _not_one(what: str, output_dir: Path, offered: Sequence[str] = ()) -> RequestError:
    command = shlex.join(["python", "launch/status.py", f"--output_dir={output_dir}", *offered])
    return RequestError(what, where=str(output_dir), next_command=command)
