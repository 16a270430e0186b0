"""Downloads one file by its address and checksum: resumes, and has its name only once the checksum is right.

What has arrived so far is NAME.part beside it.
"""

import contextlib
import errno
import fcntl
import hashlib
import http.client
import os
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import urlsplit

from benchmarks.errors import RequestError, RunError
from launch.assets import hub_access
from launch.assets.byte_progress import Show, say, size_text

BLOCK_BYTES = 1 << 20
MOST_FAILURES = 6  # in a row, without a new byte
RESERVE_BYTES = 1e9  # kept free where the server does not say how much will come
TIMEOUT_SECONDS = 60.0  # without a byte
RUN_AGAIN = "run the same command again: it resumes"
COME_AGAIN = (408, 425, 429)  # and all from 500


class Unavailable(Exception):
    """It did not work this time: worth another attempt."""


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


def fetch(
    url: str, target: Path, checksum: Checksum, show: Show, pause: Callable[[float], None] = time.sleep
) -> bool:
    """Download the file; False where it was there already."""
    if target.exists():
        refuse_another_file(target, checksum, show)
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with _locked(part, target) as stream:
        _receive_patiently(url, stream, part, show, pause)
        refuse_wrong_content(part, checksum, shown(url), show)
        os.fsync(stream.fileno())
        part.replace(target)
    return True


def refuse_url(url: str) -> None:
    if not hub_access.is_web_address(url):
        raise RequestError("only http and https URLs can be downloaded", where="--url")
    if "@" in urlsplit(url).netloc:
        raise RequestError("a login in the URL would be visible to everyone on this machine", where="--url")


def shown(url: str) -> str:
    """A URL without its login and query, which may be secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" + ("?..." if parts.query else "")


# --- checks that any download needs -----------------------------------------------------------


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


# --- receiving --------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(part: Path, target: Path) -> Iterator[IO[bytes]]:
    """The .part file, held by this process alone; removed where nothing came."""
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+b", buffering=0) as stream:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = part.stat().st_ino == os.fstat(descriptor).st_ino  # not made whole by another process meanwhile
        except (BlockingIOError, FileNotFoundError):
            same = False
        if not same:
            raise RequestError(
                "another process downloads this file", where=str(target), next_command="wait until it has ended"
            )
        try:
            yield stream
        finally:
            if os.fstat(descriptor).st_size == 0:
                part.unlink(missing_ok=True)


def _receive_patiently(url: str, stream: IO[bytes], part: Path, show: Show, pause: Callable[[float], None]) -> None:
    failures = 0
    while True:
        before = os.fstat(stream.fileno()).st_size
        try:
            _receive(url, stream, part, show)
        except Unavailable as error:
            size = os.fstat(stream.fileno()).st_size
            failures = 1 if size > before else failures + 1
            if failures >= MOST_FAILURES:
                raise RunError(
                    f"the download failed {failures} times in a row: {error}",
                    where=shown(url),
                    why=f"{size_text(size)} came and are kept in {part.name}",
                    next_command=RUN_AGAIN,
                ) from None
            seconds = 2.0 ** (failures - 1)
            say(f"{part.stem}: {error}; again in {seconds:.0f} s")
            pause(seconds)
        except OSError as error:
            raise unwritten(part, error) from error
        else:
            return


def _receive(url: str, stream: IO[bytes], part: Path, show: Show) -> None:
    """Ask for what is missing and write it; Unavailable where the connection breaks before all of it came."""
    size = stream.seek(0, os.SEEK_END)
    with contextlib.closing(_open(url, size)) as answer:
        if answer.status == 416:  # nothing is missing; the checksum decides
            return
        if answer.status != 206:
            size = stream.seek(0)
            stream.truncate()
        length = answer.headers.get("Content-Length", "")
        total = size + int(length) if length.isdecimal() else None
        refuse_without_room(part.parent, (total or size) - size)
        show(part.stem, size, total)
        while block := _read(answer):
            if total is None and shutil.disk_usage(part.parent).free < RESERVE_BYTES:
                raise _endless(part, size)
            written = memoryview(block)
            while written:
                written = written[stream.write(written) :]
            size += len(block)
            show(part.stem, size, total)
    if total is not None and size < total:
        raise Unavailable("the connection broke off")


def _open(url: str, first_byte: int) -> http.client.HTTPResponse | urllib.error.HTTPError:
    token = hub_access.from_environment().token_for(url)
    request = urllib.request.Request(url, headers={"User-Agent": "stepmark"})
    if first_byte:
        request.add_header("Range", f"bytes={first_byte}-")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")  # not sent where this redirects to
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and first_byte:
            return error
        raise _bad_status(error.code, url, token) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            why = reason.verify_message
            raise RunError("the server's certificate is not trusted", where=shown(url), why=why) from None
        raise Unavailable(f"{urlsplit(url).netloc}: {_words(reason)}") from None
    return answer


def _bad_status(status: int, url: str, token: str | None) -> Exception:
    text = f"{status} {http.client.responses.get(status, '')}".strip()
    if status in COME_AGAIN or status >= 500:
        return Unavailable(f"the server says {text}")
    if status in (401, 403):
        return hub_access.refused(status, shown(url), token)
    if status in (404, 410):
        return RequestError(f"there is no such file: the server says {text}", where=shown(url))
    return RunError(f"the server says {text}", where=shown(url))


def _read(answer: http.client.HTTPResponse | urllib.error.HTTPError) -> bytes:
    try:
        return answer.read(BLOCK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(_words(error)) from None


def _words(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection broke off"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _endless(part: Path, size: int) -> RunError:
    return RunError(
        f"less than {size_text(RESERVE_BYTES)} of disk is free, and the server does not say how much will come",
        where=str(part),
        why=f"{size_text(size)} came and are kept; a server that never ends would fill the disk",
        next_command=f"free some space, then {RUN_AGAIN}; or rm {part}",
    )
