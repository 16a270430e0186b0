"""Open the index of the runs in a folder, and print its problems."""

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import RequestError
from benchmarks.text import printable
from launch.terminal.places import own_place
from launch.terminal.progress import tracked

if TYPE_CHECKING:
    from benchmarks.history.index import Index

MOST_SHOWN = 20


def open_index(output_dir: Path) -> "Index":
    """Return an up-to-date index of the runs in a folder. Show progress while the runs are read."""
    from benchmarks.history.index import Index

    place = os.path.realpath(output_dir).encode(errors="surrogateescape")
    try:  # in the user's own folder, because several machines may share `output_dir`
        file = own_place("index", f"{hashlib.sha256(place).hexdigest()[:16]}.sqlite")
    except RequestError:  # the user has no home folder, or another user can write there
        file = None
    return Index(output_dir, file, lambda folders: tracked(folders, "reading runs", len(folders)))


def say_problems(index: "Index") -> None:
    """Print the excluded folders and remarks about the index on stderr."""
    for note in index.notes:
        print(f"stepmark: {printable(note)}", file=sys.stderr)
    problems = index.problems()
    if problems:
        folders = "1 folder is" if len(problems) == 1 else f"{len(problems)} folders are"
        print(f"stepmark: {folders} skipped in {index.output_dir}:", file=sys.stderr)
        print_some((f"{problem.folder}: {problem.reason}" for problem in problems), len(problems))


def print_some(lines: Iterable[str], count: int) -> None:
    """Print the first lines on stderr, escaped, because runs and archives may come from untrusted sources."""
    for _, line in zip(range(MOST_SHOWN), lines, strict=False):
        print(printable(f"  {line}"), file=sys.stderr)
    if count > MOST_SHOWN:
        print(f"  and {count - MOST_SHOWN} more", file=sys.stderr)
