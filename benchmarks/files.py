"""Reads files of unknown origin, and reports files that cannot be read or written.

Every string that is read from JSON becomes one printable line, so that it stays one line on a screen or a page.
"""

import contextlib
import errno
import functools
import os
import re
import shlex
import stat
import time
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from benchmarks.errors import RequestError, RunError
from benchmarks.text import printable

Read = TypeVar("Read")
Given = ParamSpec("Given")

# Errors of text that is not JSON of the expected form. msgspec's DecodeError and UnicodeDecodeError are ValueErrors.
NOT_JSON = (ValueError, RecursionError)

# A shared file system sometimes raises these errors for an intact file.
PASSING = (errno.ESTALE, errno.EIO)
PAUSES_SECONDS = (0.1, 1.0)  # the pauses before the second and the third attempt

_ESCAPED = re.compile(rb"\\[bfnrtu]")  # JSON escapes that can encode non-printable characters

REPAIR = "verify.py --repair"  # the command that recreates a run's result from its raw files
COULD_NOT_WRITE = "could-not-write"  # the name of a link in a phase's folder; inside/worker_kit.py also creates it


@contextlib.contextmanager
def passing() -> Iterator[None]:
    """Ignore a temporary error of a shared file system; the caller reads the rest of a growing file later."""
    try:
        yield
    except OSError as error:
        if error.errno not in PASSING:
            raise


def retried(read: Callable[Given, Read]) -> Callable[Given, Read]:
    """Return a function that calls `read` again if a shared file system fails."""

    @functools.wraps(read)
    def several_times(*given: Given.args, **named: Given.kwargs) -> Read:
        for pause in PAUSES_SECONDS:
            with passing():
                return read(*given, **named)
            time.sleep(pause)
        return read(*given, **named)

    return several_times


def opened(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raise OSError for a pipe or a device, because reading it may never end."""
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise OSError(errno.EINVAL, "it is a pipe, a device or a socket instead of a file", str(path))
    return path.open("rb")


@retried
def read(path: Path) -> bytes:
    """Return the whole contents of a regular file. Raise OSError if it cannot be read."""
    with opened(path) as stream:
        return stream.read()


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a regular file. After an error of a shared file system, continue with the next line."""
    place = 0
    for pause in (*PAUSES_SECONDS, None):
        try:
            with opened(path) as stream:
                stream.seek(place)
                for line in stream:
                    place += len(line)
                    yield line
                return
        except OSError as error:
            if pause is None or error.errno not in PASSING:
                raise
            time.sleep(pause)


def read_json(path: Path, kind: type[Read]) -> Read:
    """Return the JSON value in a regular file. Raise OSError, or ValueError if the file is not JSON of this type."""
    data = read(path)
    try:
        return decode_json(data, msgspec.json.Decoder(kind))
    except RecursionError:
        raise ValueError("the data is nested too deeply") from None


def decode_json(data: bytes, decoder: msgspec.json.Decoder[Read]) -> Read:
    """Return the value, with all strings made printable. Nearly all data needs no change and is decoded directly."""
    if _ESCAPED.search(data) is None and data.decode(errors="replace").replace("\n", "").isprintable():
        return decoder.decode(data)
    return msgspec.convert(one_line(msgspec.json.decode(data)), decoder.type, str_keys=True)


def one_line(value: Any) -> Any:
    """Return the data with every string in it, including keys, as one printable line."""
    if isinstance(value, dict):
        return {printable(key): one_line(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [one_line(inner) for inner in value]
    return printable(value) if isinstance(value, str) else value


def cannot_read(error: OSError, path: Path) -> RequestError:
    return RequestError(
        f"{path.name} cannot be read: {error.strerror or error}",
        where=str(path),
    )


def cannot_write(error: OSError, path: Path, why: str, run: Path) -> RunError:
    """Return the error for a failed write. `why` names the files that are kept. The next command repairs the run."""
    return RunError(
        f"{path.name} could not be written: {error.strerror or error}",
        where=str(path.parent),
        why=why,
        next_command=f"python launch/{REPAIR} {shlex.quote(str(run))}",
    )


def mark_write_failure(phase_dir: Path, error: OSError) -> None:
    """Record the reason for a failed write as a link's target, because a full disk can often still create a link."""
    with contextlib.suppress(OSError):
        (phase_dir / COULD_NOT_WRITE).symlink_to(error.strerror or str(error))


def failed(error: OSError) -> RunError:
    """Return the error for an unexpected failure of a file operation."""
    where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename or "")
    if error.errno != errno.ELOOP:
        return RunError(error.strerror or str(error), where=where)
    return RunError(
        "the file is a link, but Stepmark writes only to a regular file here",
        where=where,
        why="another user may have made the link, and it may lead to one of your other files",
        next_command=f"rm {shlex.quote(where)}",
    )
