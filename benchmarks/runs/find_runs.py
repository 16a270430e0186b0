"""Find all runs in a folder, or one run by a part of its name."""

import os
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from benchmarks.errors import RequestError
from benchmarks.runs.runfolder import BENCHMARK, RUN_ID, RunFolder
from benchmarks.text import first_few

DIGITS = 4
MOST_OFFERED = 8  # the most matching runs that an error lists; the newest are listed


def find_runs(output_dir: Path) -> list[RunFolder]:
    """Return the runs in a folder, oldest first. The name of a run begins with the time of its creation."""
    if not output_dir.is_dir():
        raise RequestError(
            "the folder of runs does not exist",
            where=str(output_dir),
            why="pass --output_dir=DIR with the folder that run.py used",
        )
    with os.scandir(output_dir) as entries:
        found = [Path(entry.path) for entry in entries if entry.name.isprintable() and entry.is_dir()]
    return [RunFolder(path) for path in sorted(found) if os.access(path / BENCHMARK, os.F_OK)]


def find_run(name: str, output_dir: Path) -> RunFolder:
    """Return a run by the path of its folder, or by a part of its name that no other run's name contains."""
    if (Path(name) / BENCHMARK).is_file():
        return RunFolder(Path(name))
    found = _run_called(name, find_runs(output_dir))
    if found is None:
        raise _not_one(f"found no run '{name}'", output_dir)
    return found


def place_of(name: str, output_dir: Path) -> Path:
    """Return the path `name` if it exists, otherwise the folder of the only run whose name contains `name`."""
    path = Path(name)
    try:
        if path.exists() or not output_dir.is_dir():
            return path
    except OSError:  # the code that opens the path reports the reason
        return path
    found = _run_called(name, find_runs(output_dir))
    return found.path if found else path


def _run_called(name: str, runs: list[RunFolder]) -> RunFolder | None:
    fitting = [folder for folder in runs if name == folder.run_id]
    if len(name) >= DIGITS:  # shorter texts occur in too many names
        fitting = fitting or [folder for folder in runs if folder.run_id.endswith(name)]
        fitting = fitting or [folder for folder in runs if name in folder.run_id]
    if len(fitting) > 1:
        short = short_names((folder.run_id for folder in fitting), {folder.run_id for folder in runs})
        what = f"'{name}' matches {len(fitting)} runs: {first_few(list(short.values()))}"
        raise _not_one(what, fitting[0].path.parent, list(short.values())[-MOST_OFFERED:])
    return next(iter(fitting), None)


def _not_one(what: str, output_dir: Path, offered: Sequence[str] = ()) -> RequestError:
    command = shlex.join(["python", "launch/status.py", f"--output_dir={output_dir}", *offered])
    why = f"pass a part of the run's name, at least {DIGITS} characters long, that no other run's name contains"
    return RequestError(what, where=str(output_dir), why=why, next_command=command)


def short_names(names: Iterable[str], among: Collection[str]) -> dict[str, str]:
    """Return run name -> short name: the four random digits at the end, if no other name ends with them.
    Every command accepts short names. `among` contains the names of all runs in the folder. For a renamed run, the
    short name is the whole name."""
    asked = list(names)
    ends = Counter(name[-DIGITS:] for name in {*among, *asked})
    return {name: name[-DIGITS:] if RUN_ID.search(name) and ends[name[-DIGITS:]] == 1 else name for name in asked}
