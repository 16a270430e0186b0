"""Files of many bytes: a bar while they are read, their checksums, the room for them on the disk."""

import contextlib
import hashlib
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks.errors import RequestError
from benchmarks.rendering.report import bytes_text

LINE_SECONDS = 10.0
BLOCK_BYTES = 1 << 20


class Show(Protocol):
    """Told what is done and how far it is, as often as one likes."""

    def __call__(self, doing: str, done: int, total: int, more: str = "") -> None: ...


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def shown_bytes() -> Iterator[Show]:
    """A bar on a terminal; without one a line when something else is done, and each ten seconds."""
    if sys.stderr.isatty():
        from rich import progress as rich_progress
        from rich.console import Console

        columns = (
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(),
            rich_progress.DownloadColumn(),
            rich_progress.TransferSpeedColumn(),
            rich_progress.TimeRemainingColumn(),
            rich_progress.TextColumn("{task.fields[more]}", markup=False),
        )
        with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None, more="")

            def update(doing: str, done: int, total: int, more: str = "") -> None:
                if bar.tasks[0].description != doing:
                    bar.reset(task)
                bar.update(task, description=doing, completed=done, total=total, more=more)

            yield update
        return
    last, printed = "", 0.0

    def line(doing: str, done: int, total: int, more: str = "") -> None:
        nonlocal last, printed
        if doing != last or time.monotonic() - printed >= LINE_SECONDS:
            last, printed = doing, time.monotonic()
            say(f"{doing}: {bytes_text(done)} of {bytes_text(total)}{', ' if more else ''}{more}")

    yield line


class Checksum(NamedTuple):
    """What a file must hash to. Git hashes its size before its bytes."""

    kind: str  # sha256 | git-sha1
    digest: str

    def of(self, path: Path, show: Show) -> str:
        """The digest of a file, of this kind."""
        total, done = path.stat().st_size, 0
        hasher = hashlib.sha256()
        if self.kind == "git-sha1":
            hasher = hashlib.sha1(b"blob %d\0" % total, usedforsecurity=False)
        with path.open("rb") as stream:
            while block := stream.read(BLOCK_BYTES):
                hasher.update(block)
                done += len(block)
                show(f"checking {path.name}", done, total)
        return hasher.hexdigest()


def free_bytes(folder: Path) -> int:
    """On the disk of a folder that may not be there yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def refuse_without_room(folder: Path, needed_bytes: int) -> None:
    free = free_bytes(folder)
    if needed_bytes > free:
        raise RequestError(
            f"the disk has no room: {bytes_text(needed_bytes)} are needed, {bytes_text(free)} are free",
            where=str(folder),
            next_command="free some space, or another --out",
        )
