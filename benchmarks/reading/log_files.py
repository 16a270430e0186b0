"""Find log files by name, and open them. Files may be compressed with gzip."""

import errno
import gzip
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, cast

LOG_NAME = re.compile(
    r"(?:.*\.(?:(?:out|log|txt|err)(?:\.\d+)?|[eo]\d+)|log-.*|slurm-.*|std(?:out|err).*|rank[._-]?\d+)"
    r"(?:\.gz)?",
    re.DOTALL,
)
PIECE_BYTES = 1 << 20
IN_MEMORY_BYTES = 8 << 20  # a larger decompressed copy is kept on disk

GZIP_MAGIC = b"\x1f\x8b"
OTHER_PACKERS = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}  # first bytes -> the program
HEAD_BYTES = 8
UNREADABLE_ERRORS = (OSError, EOFError, zlib.error)


def log_files(place: Path, on_error: Callable[[OSError], None] | None = None) -> list[Path]:
    """Return `place` if it is a file, otherwise the log files in it. `on_error` gets errors from listing a folder."""
    if not place.is_dir():
        return [place]
    walk = os.walk(place, onerror=on_error)
    found = (Path(folder, name) for folder, _, names in walk for name in names if LOG_NAME.fullmatch(name))
    return sorted(file for file in found if file.is_file())


def open_log(path: Path) -> BinaryIO:
    """Open a log as a decompressed, seekable stream, because recognising its format may take more than one pass."""
    stream = opened(path)
    if stream.seekable() and not stream.peek(HEAD_BYTES).startswith((GZIP_MAGIC, *OTHER_PACKERS)):
        return stream
    with stream:
        return copied(stream)


def opened(path: Path) -> BufferedReader:
    """Open a file. Raise OSError for a named pipe, which could wait forever; a shell's <(...) is accepted."""
    if path.resolve().is_fifo():
        raise OSError(errno.EINVAL, "a named pipe may have no writer, so reading could wait forever")
    return path.open("rb")


def copied(stream: BufferedReader) -> BinaryIO:
    copy = cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES))  # noqa: SIM115 - the caller closes it
    for piece in pieces(stream, PIECE_BYTES):
        copy.write(piece)
    return copy


def pieces(stream: BufferedReader, size: int) -> Iterator[bytes]:
    """Yield the decompressed data of a log, which may be cut off. Raise OSError if no part of it is readable."""
    head = stream.peek(HEAD_BYTES)
    other = next((name for magic, name in OTHER_PACKERS.items() if head.startswith(magic)), None)
    if other is not None:
        raise OSError(f"the log is compressed with {other}: decompress it first")
    source = gzip.GzipFile(fileobj=stream) if head.startswith(GZIP_MAGIC) else stream
    begun = False
    while data := _next(source, size, begun):
        begun = True
        yield data


def _next(source: BufferedReader | gzip.GzipFile, size: int, begun: bool) -> bytes:
    try:
        return source.read1(size)
    except (EOFError, zlib.error):
        if not begun:
            raise
    except OSError as error:
        if not begun or error.errno is not None:  # errors of gzip have no number
            raise
    return b""
