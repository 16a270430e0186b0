"""Which files are logs; and a log as UTF-8, however it is stored: packed by gzip, bzip2 or xz, or in UTF-16."""

import bz2
import codecs
import gzip
import lzma
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
    r"(?:\.(?:gz|bz2|xz))?",
    re.DOTALL,
)
PIECE_BYTES = 1 << 20
IN_MEMORY_BYTES = 8 << 20  # of what can be read once; the rest waits on disk

GZIP_MAGIC = b"\x1f\x8b"
UNPACKERS: tuple[tuple[bytes, Callable[[BufferedReader], gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]], ...] = (
    (GZIP_MAGIC, gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
)
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
HEAD_BYTES = 8
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
UNREADABLE_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


def log_files(place: Path, on_error: Callable[[OSError], None] | None = None) -> list[Path]:
    """A file whatever its name; of a folder those that are called as logs are. `on_error`: it can't be listed."""
    if not place.is_dir():
        return [place]
    walk = os.walk(place, onerror=on_error)
    found = (Path(folder, name) for folder, _, names in walk for name in names if LOG_NAME.fullmatch(name))
    return sorted(file for file in found if file.is_file())


def open_log(path: Path) -> BinaryIO:
    """A log, unpacked and seekable, as its format may show itself late."""
    stream = path.open("rb")
    head = stream.peek(HEAD_BYTES)
    is_packed = head.startswith((*(magic for magic, _ in UNPACKERS), ZSTD_MAGIC)) or head.startswith(UTF_16_MARKS)
    if stream.seekable() and not is_packed:
        return stream
    with stream:
        return copied(stream)


def copied(stream: BufferedReader) -> BinaryIO:
    copy = cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES))  # noqa: SIM115 - the caller closes it
    for piece in pieces(stream, PIECE_BYTES):
        copy.write(piece)
    return copy


def pieces(stream: BufferedReader, size: int) -> Iterator[bytes]:
    """All that can be read: a packed log may be cut off, and one of which nothing can be read is an error."""
    head = stream.peek(HEAD_BYTES)
    if head.startswith(ZSTD_MAGIC):
        raise OSError("it is packed by zstd; zstd -d unpacks it")
    unpack = next((one for magic, one in UNPACKERS if head.startswith(magic)), None)
    source = unpack(stream) if unpack else stream
    decoder, begun = None, False
    while data := _next(source, size, begun):
        if not begun and data.startswith(UTF_16_MARKS):
            decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        begun = True
        yield decoder.decode(data).encode(errors="replace") if decoder else data


def _next(source: BufferedReader | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile, size: int, begun: bool) -> bytes:
    try:
        return source.read1(size)
    except (EOFError, zlib.error, lzma.LZMAError):
        if not begun:
            raise
    except OSError as error:
        if not begun or error.errno is not None:  # without a number it is the unpacker that refuses
            raise
    return b""
