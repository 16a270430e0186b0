"""Downloads one file: goes on where it stopped, and is there only once its size and checksum are right.

Beside the file, until it is whole, stand NAME.part (what came so far) and NAME.part.json (which
version of the file that is, so that no two are mixed).
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from benchmarks.assets.assets import PART_SUFFIX
from benchmarks.errors import RequestError, RunError
from launch.assets.byte_progress import Show, say, size_text
from launch.assets.web import Answer, Unavailable, Web, shown

BLOCK_BYTES = 1 << 20
MOST_FAILURES = 6  # one after another, with nothing new in between
LONGEST_PAUSE_SECONDS = 60.0
LOOK_AT_DISK_BYTES = 64 << 20  # how often, where the size is not known
RESERVE_BYTES, RESERVE_SHARE = 1e9, 0.05  # what is left free then: the smaller of both
RUN_AGAIN = "the same command again goes on where this stopped"
CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")

Pause = Callable[[float], None]


class Checksum(NamedTuple):
    """What the file's bytes must add up to. Git's of a file hashes its size before it."""

    kind: str  # sha256 | git-sha1
    digest: str

    def of(self, size: int) -> "hashlib._Hash":
        if self.kind == "sha256":
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


class Item(NamedTuple):
    """One file to download. `bytes` is None where only the server knows."""

    url: str
    target: Path
    bytes: int | None
    checksum: Checksum


def fetch(web: Web, item: Item, show: Show, pause: Pause = time.sleep) -> bool:
    """Have the file at its place, whole; False where it was there already."""
    if item.target.exists():
        _refuse_another_file(item, show)
        return False
    item.target.parent.mkdir(parents=True, exist_ok=True)
    with _opened_part(item) as part:
        if item.bytes is None or part.size != item.bytes:
            _receive_patiently(web, item, part, show, pause)
        part.refuse_wrong(show)
        part.become_whole()
    return True


def _refuse_another_file(item: Item, show: Show) -> None:
    if not item.target.is_file():
        raise RequestError(
            "the place of the file is taken by something else",
            where=str(item.target),
            next_command="another --out, or move that away",
        )
    with item.target.open("rb") as stream:
        found = _hash_file(stream, item.checksum, item.target.name, show)
    if found != item.checksum.digest:
        raise RequestError(
            f"another file is there already: its {item.checksum.kind} is {found}, not {item.checksum.digest}",
            where=str(item.target),
            next_command=f"rm {item.target}     (or another --out)",
        )


def _hash_file(stream: IO[bytes], checksum: Checksum, name: str, show: Show) -> str:
    total = os.fstat(stream.fileno()).st_size
    hasher = checksum.of(total)
    done = 0
    stream.seek(0)
    while block := stream.read(BLOCK_BYTES):
        hasher.update(block)
        done += len(block)
        show(f"checking {name}", done, total)
    return hasher.hexdigest()


# --- what came so far -------------------------------------------------------------------------


class Part:
    """The file that is not whole yet, held by one process alone."""

    def __init__(self, item: Item, stream: IO[bytes]) -> None:
        self._item = item
        self._stream = stream
        self.path = part_path(item.target)
        self._facts_path = self.path.with_name(self.path.name + ".json")
        self.size = os.fstat(stream.fileno()).st_size

    def validator(self) -> str | None:
        """The ETag or date of the version that these bytes are of."""
        try:
            facts = json.loads(self._facts_path.read_text())
        except (OSError, ValueError):
            return None
        value = facts.get("validator") if isinstance(facts, dict) else None
        return value if isinstance(value, str) else None

    def begin(self, validator: str | None) -> None:
        """Start from nothing, with another version of the file perhaps."""
        self._stream.truncate(0)
        self._stream.seek(0)
        self.size = 0
        self._facts_path.write_text(json.dumps({"validator": validator}) + "\n")

    def write(self, block: bytes) -> None:
        left = memoryview(block)
        while left:
            count = self._stream.write(left)
            self.size += count
            left = left[count:]

    def go_on(self) -> None:
        self._stream.seek(self.size)

    def refuse_wrong(self, show: Show) -> None:
        """Raise, and keep nothing, where these are not the bytes that were asked for."""
        item, wrong = self._item, ""
        if item.bytes is not None and self.size != item.bytes:
            wrong = f"{self.size:,} bytes came, {item.bytes:,} were expected"
        elif (found := _hash_file(self._stream, item.checksum, item.target.name, show)) != item.checksum.digest:
            wrong = f"{item.checksum.kind} {found} came, {item.checksum.digest} was expected"
        if wrong:
            self._remove()
            raise RunError(
                f"the file that came is not the one that was asked for: {wrong}",
                where=shown(item.url),
                why="it was changed on the server or on the way, or the checksum is another file's; nothing was kept",
                next_command="compare the checksum with what the publisher says, then run the same command again",
            )

    def become_whole(self) -> None:
        os.fsync(self._stream.fileno())
        self.path.replace(self._item.target)
        self._facts_path.unlink(missing_ok=True)

    def clear_if_empty(self) -> None:
        if self.size == 0:
            self._remove()

    def _remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._facts_path.unlink(missing_ok=True)


def part_path(target: Path) -> Path:
    return target.with_name(target.name + PART_SUFFIX)


@contextlib.contextmanager
def _opened_part(item: Item) -> Iterator[Part]:
    descriptor = os.open(part_path(item.target), os.O_RDWR | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+b", buffering=0) as stream:
        if not _is_ours(descriptor, part_path(item.target)):
            raise RequestError(
                "another process downloads this file",
                where=str(item.target),
                next_command="wait until it has ended",
            )
        part = Part(item, stream)
        try:
            yield part
        finally:
            part.clear_if_empty()


def _is_ours(descriptor: int, path: Path) -> bool:
    """Whether nobody else holds it; and it is still the part, not the whole file that another just made of it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


# --- patience ---------------------------------------------------------------------------------


class Patience:
    """How often a thing is tried that did not work, and how long to wait before: longer each time."""

    def __init__(self, pause: Pause) -> None:
        self._pause = pause
        self._failures = 0  # since something new came

    def wait(self, what: str, error: Unavailable, came_on: bool = False) -> bool:
        """False where it was tried often enough."""
        self._failures = 1 if came_on else self._failures + 1
        if self._failures >= MOST_FAILURES:
            return False
        seconds = min(LONGEST_PAUSE_SECONDS, error.wait_seconds or 2.0 ** (self._failures - 1))
        say(f"{what}; again in {seconds:.0f} s")
        self._pause(seconds)
        return True


# --- receiving --------------------------------------------------------------------------------


def _receive_patiently(web: Web, item: Item, part: Part, show: Show, pause: Pause) -> None:
    patience = Patience(pause)
    while True:
        before = part.size
        try:
            _receive(web, item, part, show)
        except Unavailable as error:
            if not patience.wait(f"{item.target.name}: {error}", error, came_on=part.size > before):
                raise _given_up(item, part, error) from None
        except OSError as error:
            raise _unwritten(item, error) from error
        else:
            return


def _given_up(item: Item, part: Part, error: Unavailable) -> RunError:
    return RunError(
        f"the download failed {MOST_FAILURES} times, one after another: {error}",
        where=shown(item.url),
        why=f"{size_text(part.size)} came and are kept in {part.path.name}",
        next_command=RUN_AGAIN,
    )


def _unwritten(item: Item, error: OSError) -> RunError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return RunError(
        f"the file cannot be written: {error.strerror or error}",
        where=str(item.target),
        why="the disk ran full meanwhile" if full else "",
        next_command=("free some space; " if full else "") + RUN_AGAIN,
    )


def _receive(web: Web, item: Item, part: Part, show: Show) -> None:
    """Ask for what is missing and write it; Unavailable when the connection breaks before all of it came."""
    answer = web.open(item.url, _range_headers(part))
    try:
        if answer.status == 416:
            _settle_beyond_the_end(answer, part)
            return
        if answer.status == 206:
            _refuse_another_range(answer, part)
            part.go_on()
        else:
            part.begin(_validator(answer))
        length = answer.headers.get("Content-Length", "")
        total = part.size + int(length) if length.isdecimal() else None
        _refuse_another_size(item, total)
        expected = item.bytes if total is None else total
        refuse_without_room(item.target.parent, (expected or part.size) - part.size)
        _copy(answer, part, item, expected, show)
    finally:
        answer.close()


def _range_headers(part: Part) -> dict[str, str]:
    """Go on only with the same version: without a word of it, start anew."""
    validator = part.validator()
    return {"Range": f"bytes={part.size}-", "If-Range": validator} if part.size and validator else {}


def _validator(answer: Answer) -> str | None:
    etag = answer.headers.get("ETag")
    if etag and not etag.startswith("W/"):  # a weak one promises no equal bytes
        return str(etag)
    return answer.headers.get("Last-Modified")


def _settle_beyond_the_end(answer: Answer, part: Part) -> None:
    said = CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
    if said is None or said[2] != str(part.size):
        part.begin(None)
        raise Unavailable("the file on the server is another one now")


def _refuse_another_range(answer: Answer, part: Part) -> None:
    said = CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
    same_version = _validator(answer) in (None, part.validator())
    if said is None or said[1] != str(part.size) or not same_version:
        part.begin(None)
        raise Unavailable("the server sent another part than was asked for")


def _refuse_another_size(item: Item, total: int | None) -> None:
    if total is not None and item.bytes is not None and total != item.bytes:
        raise RunError(
            f"the server's file has {total:,} bytes, {item.bytes:,} were expected",
            where=shown(item.url),
            why="it is another version of the file, or the hub's page of an error",
        )


def _copy(answer: Answer, part: Part, item: Item, expected: int | None, show: Show) -> None:
    """Write what comes, and no more than is expected; of unknown size, no more than the disk can bear."""
    looked_at = None
    show(item.target.name, part.size, expected)
    while block := answer.read(BLOCK_BYTES):
        if expected is None and (looked_at is None or part.size - looked_at >= LOOK_AT_DISK_BYTES):
            _refuse_to_fill(part)
            looked_at = part.size
        if expected is not None and part.size + len(block) > expected:
            part.begin(None)
            raise _too_much(item, expected)
        part.write(block)
        show(item.target.name, part.size, expected)
    if expected is not None and part.size < expected:
        raise Unavailable("the connection broke off")


def _too_much(item: Item, expected: int) -> RunError:
    return RunError(
        f"the server sends more than the {expected:,} bytes that were expected",
        where=shown(item.url),
        why="it is another file, or a server that does not end; nothing was kept",
        next_command="compare the address with what the publisher says, then run the same command again",
    )


def _refuse_to_fill(part: Part) -> None:
    disk = shutil.disk_usage(part.path.parent)
    if disk.free < min(RESERVE_BYTES, RESERVE_SHARE * disk.total):
        raise RunError(
            f"the disk is almost full, with {size_text(disk.free)} free, and the server does not say how much comes",
            where=str(part.path),
            why=f"{size_text(part.size)} came and are kept; a server that does not end would fill the disk",
            next_command=f"free some space, then {RUN_AGAIN}; or rm {part.path}",
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
