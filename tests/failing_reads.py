"""One read of a shared folder fails, as on NFS (ESTALE) and Lustre (EIO), for every reader.

The tests fail each place in the code that reads once, and one read in ten. All reads in turn take minutes:

    python -m pytest -m every_program tests/launch/running/test_failing_reads.py tests/launch/slurm/test_watch.py
"""

import builtins
import errno
import io
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

ERRORS = (errno.ESTALE, errno.EIO)
BY_PATH = ("stat", "lstat", "scandir", "listdir", "readlink")  # of the module os
REPOSITORY = Path(__file__).resolve().parents[1]
HELPERS = str(REPOSITORY / "benchmarks/files.py")  # a place of the code is where these are called
SOURCES = tuple(f"{REPOSITORY / name}{os.sep}" for name in ("benchmarks", "launch", "jax_backend", "nemo_backend"))
EVERY = [10, pytest.param(1, marks=pytest.mark.every_program)]  # of each_failure


class FailingReads:
    """Counts what reads below a folder, and fails the `at`-th, or the first at a place that is not in `places`."""

    def __init__(self, folder: Path, at: int, places: set[str] | None = None) -> None:
        self.folder, self.at, self.count = str(folder), at, 0
        self.places = places
        self.failed, self.failed_at = "", 0

    def look(self, what: str, path: Any) -> None:
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if not isinstance(name, str) or not name.startswith(self.folder):
            return
        self.count += 1
        if not self.failed and (self.count == self.at or self._is_new(what)):
            self.failed, self.failed_at = f"{what} of {name.removeprefix(self.folder)}", self.count
            number = ERRORS[self.count % len(ERRORS)]
            raise OSError(number, os.strerror(number), name)

    def _is_new(self, what: str) -> bool:
        """Whether nothing failed yet where two lines of the code lead to this read; they are remembered."""
        frames = ((frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(sys._getframe(2)))
        ours = (f"{name}:{line}" for name, line in frames if name.startswith(SOURCES) and name != HELPERS)
        place = " ".join([what, *islice(ours, 2)])
        if self.places is None or place in self.places:
            return False
        self.places.add(place)
        return True

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in BY_PATH:
            monkeypatch.setattr(os, name, self._looking(name, getattr(os, name)))
        plain = io.open
        look = self.look

        class Raw(io.FileIO):
            def readinto(self, buffer: Any) -> Any:
                look("read", self.name)
                return super().readinto(buffer)

            def readall(self) -> bytes:
                look("read", self.name)
                return super().readall()

        def opened(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            if set(mode) - set("rbt") or not str(file).startswith(self.folder):
                return plain(file, mode, *more, **named)
            look("open", file)
            binary = io.BufferedReader(Raw(os.fspath(file), "rb"))
            return binary if "b" in mode else io.TextIOWrapper(binary, errors=named.get("errors"))

        for module in (io, builtins):
            monkeypatch.setattr(module, "open", opened)

    def _looking(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def looking(path: Any = ".", *more: Any, **named: Any) -> Any:
            self.look(what, path)
            return call(path, *more, **named)

        return looking


def each_failure(folder: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> Iterator[FailingReads]:
    """Fail one read while the loop's body runs: at each place in the code once, and one in `every` of all.

    The folder is each time as it was at first.
    """
    template = folder.with_name(f"{folder.name}-before")
    shutil.copytree(folder, template)
    places = set[str]()
    at = 1
    while True:
        reads = FailingReads(folder, at, places)
        with monkeypatch.context() as now:
            reads.patch(now)
            yield reads
        if not reads.failed:
            return
        if reads.failed_at == at:
            at += every
        shutil.rmtree(folder)
        shutil.copytree(template, folder)
