"""The index over the runs of a folder, where it is kept, and how a person sees it being made."""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import RequestError
from benchmarks.logs.log_endings import printable
from launch.command_line.places import stepmark_home

if TYPE_CHECKING:
    from benchmarks.history.index import Index

WORTH_SHOWING, SHOWN_EVERY = 2000, 500  # folders
MOST_SHOWN = 20


def index_file(output_dir: Path) -> Path:
    """A file of this user's own, by the folder's place: never in a folder that many machines share."""
    place = str(output_dir.resolve()).encode(errors="surrogateescape")
    return stepmark_home() / "index" / f"{hashlib.sha256(place).hexdigest()[:16]}.sqlite"


def open_index(output_dir: Path, rebuild: bool = False) -> "Index":
    """The runs of a folder as they are now; `rebuild` forgets what was known of them."""
    from benchmarks.history.index import Index

    try:
        file = index_file(output_dir)
    except RequestError:  # a user without a home
        file = None
    return Index(output_dir, file, _progress if sys.stderr.isatty() else None, rebuild=rebuild)


def say_problems(index: "Index") -> None:
    """What was left out, and what is to be known of the index itself, beside what is printed."""
    for note in index.notes:
        print(f"stepmark: {printable(note)}", file=sys.stderr)
    problems = index.problems()
    if problems:
        folders = "1 folder is" if len(problems) == 1 else f"{len(problems)} folders are"
        print(f"stepmark: {folders} left out in {index.output_dir}:", file=sys.stderr)
        print_some((f"{problem.folder}: {problem.reason}" for problem in problems), len(problems))


def print_some(lines: Iterable[str], count: int) -> None:
    """On stderr; whoever wrote a run or an archive may be a stranger."""
    for _, line in zip(range(MOST_SHOWN), lines, strict=False):
        print(printable(f"  {line}"), file=sys.stderr)
    if count > MOST_SHOWN:
        print(f"  and {count - MOST_SHOWN} more", file=sys.stderr)


def _progress(done: int, total: int) -> None:
    """On a terminal, a line that vanishes in the end."""
    if total >= WORTH_SHOWING and (done % SHOWN_EVERY == 0 or done == total):
        end = "\r\x1b[K" if done == total else ""
        print(f"\rreading runs: {done:,} of {total:,}{end}", end="", file=sys.stderr, flush=True)
