"""What any file must pass that comes or is there already: its checksum, the room on the disk, its place."""

import errno
import hashlib
import shutil
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RequestError, RunError
from launch.assets.byte_progress import Show, size_text

BLOCK_BYTES = 1 << 20
RUN_AGAIN = "run the same command again: it resumes"


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


def refuse_another_file(target: Path, checksum: Checksum, show: Show) -> None:
    """RequestError where something else has the file's name: it is never overwritten."""
    if not target.is_file():
        raise RequestError(
            "the file's name is taken by something else",
            where=str(target),
            next_command="another --out, or move that away",
        )
    found = checksum.of(target, show)
    if found != checksum.digest:
        raise RequestError(
            f"another file is there already: its {checksum.kind} is {found}, not {checksum.digest}",
            where=str(target),
            next_command=f"rm {target}     (or another --out)",
        )


def refuse_wrong_content(path: Path, checksum: Checksum, source: str, show: Show) -> None:
    """Remove a downloaded file that is not the one that was asked for, and raise."""
    found = checksum.of(path, show)
    if found != checksum.digest:
        path.unlink()
        raise RunError(
            f"the downloaded file is not the expected one: its {checksum.kind} is {found}, not {checksum.digest}",
            where=source,
            why="it changed on the server or on the way, or the checksum is another file's; nothing was kept",
            next_command="compare the checksum with the publisher's, then run the same command again",
        )


def refuse_without_room(folder: Path, needed_bytes: int) -> None:
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed_bytes > free:
        raise RequestError(
            f"the disk has no room: {size_text(needed_bytes)} are needed, {size_text(free)} are free",
            where=str(folder),
            next_command="free some space, or another --out",
        )


def unwritten(target: Path, error: OSError) -> RunError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return RunError(
        f"the file cannot be written: {error.strerror or error}",
        where=str(target),
        why="the disk is full" if full else "",
        next_command=("free some space; " if full else "") + RUN_AGAIN,
    )
