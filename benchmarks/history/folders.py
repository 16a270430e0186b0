"""The folders below a folder of runs: which are there, which have changed, and what each one is.

A run lies in the folder itself, or one level deeper (results/team/RUN). What has a name that Stepmark uses otherwise,
or a dot before it, is no run; files are none either. All else is a row, or is named with its reason.
"""

import errno
import os
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.errors import RequestError
from benchmarks.history.filters import columns_of
from benchmarks.runs.finished_run import read_finished_run
from benchmarks.runs.runfolder import BENCHMARK, PLAN, PROVENANCE, RESULT, STEPS, RunFolder

NO_RUNS = frozenset({"nights", "dashboard"})  # what Stepmark itself keeps beside the runs
OF_A_RUN = (RESULT, PLAN, PROVENANCE, STEPS, "attempt-1")
# A folder that was changed so lately may change again within the same tick of its file system's clock.
YOUNG_NS = 120 * 10**9
FOREIGN = f"no run: it has no {BENCHMARK}, and no folder in it has one"

_ENCODER = msgspec.msgpack.Encoder()
_MOST = (1 << 63) - 1
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}  # it was removed meanwhile, or is a link to nothing


class Candidate(NamedTuple):
    """A folder that is to be looked into."""

    root: str
    path: str  # relative to it
    stamp: int  # another one: something in the folder was made, renamed or removed
    young: bool


class Looked(NamedTuple):
    """What a folder is: a run, a folder with runs in it, a problem, or (not `kept`) nothing yet."""

    path: str
    stamp: int
    kept: bool = True
    reason: str | None = None
    holds_runs: bool = False
    columns: tuple[str | float | None, ...] = ()
    entry: bytes | None = None


def scan(root: str, below: str, known: dict[str, int | None], unread: dict[str, str]) -> list[Candidate]:
    """The folders that are new, have changed, or may have; one stat each.

    What is there but cannot be looked at now is put into `unread`, with the reason; what was known of it stays known.

    `known` are the stamps that they had (None: to be looked into in any case). Those that are there are taken out of
    it, so that the rest is gone: of a hundred thousand folders, each line here costs a few hundredths of a second.
    """
    candidates, prefix = [], f"{below}/" if below else ""
    youngest, before = time.time_ns() - YOUNG_NS, known.pop
    with os.scandir(f"{root}/{below}") as entries:
        for entry in entries:
            try:
                about = entry.stat()
            except OSError as error:
                if error.errno not in _GONE and not is_own(entry.name):
                    unread[_shown(prefix + entry.name)] = str(error.strerror)
                continue
            path, changed_ns = prefix + entry.name, about.st_mtime_ns
            stamp = (changed_ns + about.st_ctime_ns) & _MOST
            if before(path, None) == stamp and changed_ns < youngest:
                continue
            if not is_own(entry.name) and entry.is_dir():
                before(_shown(path), None)
                candidates.append(Candidate(root, path, stamp, changed_ns >= youngest))
    return candidates


def is_own(name: str) -> bool:
    """Stepmark's, or somebody's own business: never looked into."""
    return name[0] == "." or name in NO_RUNS


def look(candidate: Candidate) -> Looked:
    """Reads a folder; may be called in another process. Whatever is in it, the other folders are read as well."""
    shown = _shown(candidate.path)
    if shown != candidate.path:
        return Looked(shown, candidate.stamp, reason="its name is no text (UTF-8)")
    try:
        return _looked(candidate, Path(candidate.root, candidate.path))
    except Exception as error:
        return Looked(shown, candidate.stamp, reason=f"it cannot be read: {type(error).__name__}: {error}")


def _looked(candidate: Candidate, folder: Path) -> Looked:
    try:
        entry = read_finished_run(RunFolder(folder), candidate.path)
        return Looked(candidate.path, candidate.stamp, columns=columns_of(entry), entry=_ENCODER.encode(entry))
    except RequestError as error:
        return _no_run(candidate, folder, error.what)


def _shown(path: str) -> str:
    """A name that is no UTF-8, as text."""
    return path.encode(errors="backslashreplace").decode()


def _no_run(candidate: Candidate, folder: Path, wrong: str) -> Looked:
    path, stamp = candidate.path, candidate.stamp
    try:
        inside = os.listdir(folder)  # noqa: PTH208 - names are all that is asked for
    except FileNotFoundError:
        return Looked(path, stamp, kept=False)
    except OSError as error:
        return Looked(path, stamp, reason=f"it cannot be read: {error.strerror}")
    if BENCHMARK in inside or any(name in inside for name in OF_A_RUN):
        return Looked(path, stamp, reason=f"a damaged run: {wrong}")
    if candidate.young and all(name.startswith(".") for name in inside):
        return Looked(path, stamp, kept=False)  # a launcher is just making it
    if "/" not in path and any((folder / name / BENCHMARK).is_file() for name in inside):
        return Looked(path, stamp, holds_runs=True)
    return Looked(path, stamp, reason=FOREIGN)
