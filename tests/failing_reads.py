"""One read of a shared folder fails, as on NFS (ESTALE) and Lustre (EIO): each in turn, whatever reads it."""

import builtins
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ERRORS = (errno.ESTALE, errno.EIO)
BY_PATH = ("stat", "lstat", "scandir", "listdir", "readlink")  # of the module os


class FailingReads:
    """Counts what reads below a folder, and fails the `at`-th."""

    def __init__(self, folder: Path, at: int) -> None:
        self.folder, self.at, self.count = str(folder), at, 0
        self.failed = ""

    def look(self, what: str, path: Any) -> None:
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if not isinstance(name, str) or not name.startswith(self.folder):
            return
        self.count += 1
        if self.count == self.at:
            self.failed = f"{what} of {name.removeprefix(self.folder)}"
            number = ERRORS[self.at % len(ERRORS)]
            raise OSError(number, os.strerror(number), name)

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


def each_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingReads]:
    """Fail the first read while the loop's body runs, then the second, until nothing is left to fail.

    The folder is each time as it was at first.
    """
    template = folder.with_name(f"{folder.name}-before")
    shutil.copytree(folder, template)
    at = 0
    while True:
        at += 1
        reads = FailingReads(folder, at)
        with monkeypatch.context() as now:
            reads.patch(now)
            yield reads
        if not reads.failed:
            return
        shutil.rmtree(folder)
        shutil.copytree(template, folder)
