"""The index over the runs of a folder, where it is kept, and how a person sees it being made."""

import hashlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import RequestError
from benchmarks.logs.log_endings import printable
from launch.command_line.places import stepmark_home

if TYPE_CHECKING:
    from benchmarks.history.folders import Candidate, Looked
    from benchmarks.history.index import Index, Progress

WORTH_A_POOL = 2000  # folders: before that, starting processes takes longer than they save
AT_ONCE = 256
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
    with _progress() as progress:
        return Index.open(output_dir, file, progress, spread=_spread, rebuild=rebuild, waiting=_say_waiting)


def _say_waiting(lock: Path) -> None:
    print(f"stepmark: another process makes the index of these runs; waiting for {lock}", file=sys.stderr, flush=True)


def say_problems(index: "Index") -> None:
    """What was left out, and what is to be known of the index itself, beside what is printed."""
    for note in index.notes:
        print(f"stepmark: {printable(note)}", file=sys.stderr)
    problems = index.problems()
    if not problems:
        return
    folders = "1 folder is" if len(problems) == 1 else f"{len(problems)} folders are"
    print(f"stepmark: {folders} left out in {index.output_dir}:", file=sys.stderr)
    for problem in problems[:MOST_SHOWN]:
        print(printable(f"  {problem.folder}: {problem.reason}"), file=sys.stderr)
    if len(problems) > MOST_SHOWN:
        print(f"  and {len(problems) - MOST_SHOWN} more (--format=json has all)", file=sys.stderr)


def _spread(work: "Callable[[Candidate], Looked]", folders: "Sequence[Candidate]") -> "Iterable[Looked]":
    """Many folders are read by all processors. A process with threads is not forked: they may hold locks."""
    processors = os.cpu_count() or 1
    if len(folders) < WORTH_A_POOL or processors == 1 or threading.active_count() > 1:
        yield from map(work, folders)
        return
    with multiprocessing.get_context("fork").Pool(processors) as pool:
        yield from pool.imap_unordered(work, folders, chunksize=AT_ONCE)


@contextmanager
def _progress() -> "Iterator[Progress | None]":
    """On a terminal, a line that vanishes in the end; it begins when the first folders have been read."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(done: int, total: int) -> None:
        if total >= WORTH_A_POOL:
            end = "\r\x1b[K" if done == total else ""
            print(f"\rreading runs: {done:,} of {total:,}{end}", end="", file=sys.stderr, flush=True)

    yield show
