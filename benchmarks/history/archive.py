"""Runs as one file that another machine can check: RUNS.tar.gz with the sha256 of every file in it.

First manifest.json (every file's size and sha256), then SHA256SUMS (the same for `sha256sum -c`, the manifest's own
included), then runs/NAME/... The same runs give the same bytes: no times, owners or modes are kept. Left out of a run
is what is no proof of anything: tensorboard/, which is made from the steps; and, by name, links and files with a dot
before their name, which are just being written or somebody's own. Raw files go in as they are, for their digests:
which of them hold what looks like a secret is told.
"""

import contextlib
import errno
import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

import msgspec

from benchmarks.errors import RequestError, RunError
from benchmarks.secret_rules import hidden_in_log
from benchmarks.values import Value, json_text
from benchmarks.version import VERSION

MANIFEST, SUMS, RUNS = "manifest.json", "SHA256SUMS", "runs"
LEFT_OUT = ("tensorboard",)
SCHEMA_VERSION = 1
LARGEST_MANIFEST_BYTES = 1 << 29
# A manifest is half digests, which do not become smaller: it is no larger than a few times its archive.
MANIFEST_PER_ARCHIVE, SMALLEST_LIMIT_BYTES = 20, 1 << 20
LARGEST_HEADER_BYTES = 1 << 20  # of a member; a name has at most some thousand
MOST_DIFFERENCES = 1000
LOOKED_AT_BYTES = 1 << 20  # of each end of a file, for secrets
CHUNK = 1 << 20
# Deflate, no flags, no time, no system: the only bytes of a gzip file that no checksum covers.
GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RUN_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
# Of a name in an archive that no file can have, or not beside the others.
_OF_THE_NAME = {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ}
_NOT_SOUND = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError, ValueError)


class FileSum(Value, frozen=True):
    sha256: str
    bytes: int


class Manifest(Value, frozen=True):
    schema_version: int
    made_by: str  # Stepmark's version
    left_out: list[str]  # of every run
    files: dict[str, FileSum]  # path in the archive -> what it holds

    @property
    def runs(self) -> list[str]:
        return sorted({PurePosixPath(name).parts[1] for name in self.files})

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


# --- writing --------------------------------------------------------------------------------------


class Packed(Value, frozen=True):
    manifest: Manifest
    manifest_sha256: str
    skipped: list[str]  # links, files with a dot before their name and the like, by their paths
    secrets: list[str] = []  # files that hold what looks like a secret, as they are called in the archive


def write_archive(folders: Sequence[Path], target: Path) -> Packed:
    """Whole or not at all; an archive that is there already is not touched."""
    if target.exists():
        raise RequestError("there is such a file already", where=str(target), next_command="another name, or move it")
    sources, skipped = _sources(folders)
    files = {name: FileSum(sha256=_sha256(path), bytes=path.stat().st_size) for name, path in sources.items()}
    manifest = Manifest(schema_version=SCHEMA_VERSION, made_by=VERSION, left_out=list(LEFT_OUT), files=files)
    data = json_text(manifest).encode()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("xb") as raw:
            _pack(raw, data, manifest, sources)
            raw.flush()
            os.fsync(raw.fileno())
        temporary.replace(target)
    except OSError as error:
        raise RunError(f"the archive could not be written: {error.strerror}", where=str(target)) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return Packed(
        manifest=manifest,
        manifest_sha256=hashlib.sha256(data).hexdigest(),
        skipped=skipped,
        secrets=[name for name, path in sources.items() if _holds_a_secret(path)],
    )


def _sources(folders: Sequence[Path]) -> tuple[dict[str, Path], list[str]]:
    sources: dict[str, Path] = {}
    skipped: list[str] = []
    names: dict[str, Path] = {}
    for folder in sorted(folders, key=lambda folder: folder.name):
        if not _RUN_NAME.fullmatch(folder.name) or folder.name in names:
            raise RequestError(
                f"two runs are called {folder.name}" if folder.name in names else "that is no name of a run",
                where=str(folder),
                next_command="name each run once" if folder.name in names else "rename the folder",
            )
        names[folder.name] = folder
        for path in _files(folder):
            relative = path.relative_to(folder).as_posix()
            if path.name.startswith(".") or path.is_symlink() or not path.is_file() or not _is_text(relative):
                skipped.append(str(path).encode(errors="backslashreplace").decode())
            else:
                sources[f"{RUNS}/{folder.name}/{relative}"] = path
    return dict(sorted(sources.items())), skipped


def _files(folder: Path) -> Iterator[Path]:
    """All but folders, and what is left out of every run."""
    for place, below, names in os.walk(folder):
        here = Path(place)
        links = [name for name in below if (here / name).is_symlink()]
        below[:] = sorted(name for name in below if not (here == folder and name in LEFT_OUT))
        yield from (here / name for name in (*names, *links))


def _holds_a_secret(path: Path) -> bool:
    """In the first or the last part of a text; what is no text is not looked at."""
    with path.open("rb") as stream:
        first = stream.read(LOOKED_AT_BYTES)
        if b"\0" in first:
            return False
        stream.seek(max(len(first), path.stat().st_size - LOOKED_AT_BYTES))
        last = stream.read(LOOKED_AT_BYTES)
    return any(hidden_in_log(text) != text for text in (first, last))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return name.isprintable()


def _pack(raw: BinaryIO, manifest_data: bytes, manifest: Manifest, sources: Mapping[str, Path]) -> None:
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in ((MANIFEST, manifest_data), (SUMS, _sums(manifest, manifest_data))):
            tar.addfile(_member(name, len(data)), io.BytesIO(data))
        for name, path in sources.items():
            expected = manifest.files[name]
            with path.open("rb") as stream:
                summed = _Summed(stream)
                try:
                    tar.addfile(_member(name, expected.bytes), cast("IO[bytes]", summed))
                except OSError as error:
                    if error.errno is not None:
                        raise
                    summed.sha256.update(b"cut")  # tarfile's word for a file that has become shorter
                if summed.sha256.hexdigest() != expected.sha256:
                    raise RunError("a file was changed while it was archived", where=str(path))


def _member(name: str, size: int) -> tarfile.TarInfo:
    """Nothing of this machine: no time, no owner."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


def _sums(manifest: Manifest, manifest_data: bytes) -> bytes:
    lines = [f"{hashlib.sha256(manifest_data).hexdigest()}  {MANIFEST}"]
    lines += [f"{file.sha256}  {name}" for name, file in manifest.files.items()]
    return "".join(f"{line}\n" for line in lines).encode()


class _Summed:
    """A stream whose bytes are summed up as they are read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.sha256.update(data)
        return data


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- reading --------------------------------------------------------------------------------------


class Unpacked(Value, frozen=True):
    manifest: Manifest | None  # None: there is none that could be read
    manifest_sha256: str | None
    differences: list[str]  # from what was written, each in a sentence; none: it is whole


def unpack(archive: Path, target: Path) -> Unpacked:
    """Every file that the manifest names, checked and written below `target`; nothing else is ever written."""
    allowed = max(SMALLEST_LIMIT_BYTES, MANIFEST_PER_ARCHIVE * archive.stat().st_size)
    reader = _Reader(target, min(allowed, LARGEST_MANIFEST_BYTES))
    try:
        with archive.open("rb") as raw:
            if raw.read(len(GZIP_HEADER)) != GZIP_HEADER:
                return reader.found("it does not begin as an archive of runs does")
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw, mode="rb") as packed:
                reader.read(packed)
    except _NOT_SOUND as error:
        return reader.found(f"it is cut off or damaged: {str(error) or type(error).__name__}")
    return reader.found()


class _Reader:
    """Goes through an archive once, from its first byte to its last."""

    def __init__(self, target: Path, largest_manifest_bytes: int) -> None:
        self._target = target
        self._largest_manifest_bytes = largest_manifest_bytes
        self._manifest: Manifest | None = None
        self._data = b""
        self._seen: set[str] = set()
        self._differences: list[str] = []

    def read(self, packed: gzip.GzipFile) -> None:
        watched = _Watched(packed)
        with tarfile.open(fileobj=cast("IO[bytes]", watched), mode="r|", bufsize=tarfile.RECORDSIZE) as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined] # it would keep all of them
                watched.limit = tar.offset + LARGEST_HEADER_BYTES
                self._take(tar, member)
                if len(self._differences) > MOST_DIFFERENCES:
                    raise ValueError(f"more than {MOST_DIFFERENCES:,} differences: the rest was not read")
            end = tar.offset % tarfile.RECORDSIZE
        if watched.last[end:].strip(b"\0") or packed.read(1):
            self._differences.append("there is something after its last file")
        while packed.read(CHUNK):  # to the checksum at its end
            pass

    def found(self, *more: str) -> Unpacked:
        missing: Iterable[str] = []
        if self._manifest is not None:
            missing = [f"{name} is missing" for name in sorted(self._manifest.files.keys() - self._seen)]
        elif not more and not self._differences:
            more = (f"it has no {MANIFEST}",)
        return Unpacked(
            manifest=self._manifest,
            manifest_sha256=hashlib.sha256(self._data).hexdigest() if self._manifest else None,
            differences=[*more, *self._differences, *missing],
        )

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = member.name
        wrong = self._refused(member)
        if wrong:
            self._differences.append(f"{name.encode(errors='backslashreplace').decode()!r} {wrong}")
            return
        self._seen.add(name)
        stream = tar.extractfile(member)
        assert stream is not None
        if name == MANIFEST:
            self._read_manifest(stream.read())
        elif name == SUMS:
            if self._manifest is not None and stream.read() != _sums(self._manifest, self._data):
                self._differences.append(f"{SUMS} is not what {MANIFEST} says")
        else:
            self._copy(name, stream)

    def _refused(self, member: tarfile.TarInfo) -> str | None:
        """Why a member is not read at all."""
        if member.issparse():
            raise ValueError("a file with holes in it, which no archive of runs has")
        if member.type != tarfile.REGTYPE:
            return "is no plain file"
        if member.name in self._seen:
            return "is there twice"
        if member.name in (MANIFEST, SUMS):
            return "is too large" if member.size > self._largest_manifest_bytes else None
        expected = self._manifest.files.get(member.name) if self._manifest else None
        if expected is None:
            return f"was added: {MANIFEST} does not name it"
        return None if member.size == expected.bytes else f"has {member.size} bytes instead of {expected.bytes}"

    def _read_manifest(self, data: bytes) -> None:
        try:
            manifest = msgspec.json.decode(data, type=Manifest)
        except msgspec.DecodeError as error:
            raise ValueError(f"{MANIFEST}: {error}") from None
        unsafe = [name for name in manifest.files if not _is_safe(name)]
        if unsafe:
            raise ValueError(f"{MANIFEST} names {unsafe[0]!r}, which is no file of a run")
        if not manifest.files:
            raise ValueError(f"{MANIFEST} names no file of a run")
        if self._seen != {MANIFEST} or manifest.schema_version != SCHEMA_VERSION:
            raise ValueError(f"{MANIFEST} is not the first file, or of another version than {SCHEMA_VERSION}")
        self._manifest, self._data = manifest, data

    def _copy(self, name: str, stream: IO[bytes]) -> None:
        summed = _Summed(stream)
        with self._made(name) as out:
            while data := summed.read(CHUNK):
                out.write(data)
        assert self._manifest is not None
        if summed.sha256.hexdigest() != self._manifest.files[name].sha256:
            self._differences.append(f"{name} was changed: its sha256 is another")

    def _made(self, name: str) -> BinaryIO:
        path = self._target / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
        except OSError as error:
            if error.errno not in _OF_THE_NAME:
                raise
            raise ValueError(
                f"{MANIFEST} names {name[:200]!r}, and no file can be called so: {error.strerror}"
            ) from None


class _Watched:
    """What tarfile reads, with the last record at hand: what stands in it after the end, tarfile does not say.

    tarfile takes a member's headers into memory, however large they say they are: `limit` is how far it may read.
    """

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self._read = 0
        self.last = b""
        self.limit = LARGEST_HEADER_BYTES

    def read(self, size: int) -> bytes:
        if self._read > self.limit:
            raise ValueError("a header is larger than any that Stepmark writes")
        data = self._stream.read(size)
        self._read += len(data)
        self.last = data or self.last
        return data


def _is_safe(name: str) -> bool:
    """runs/NAME/FILE, and nowhere else."""
    parts = name.split("/")
    return (
        len(parts) > 2
        and parts[0] == RUNS
        and bool(_RUN_NAME.fullmatch(parts[1]))
        and all(part not in ("", ".", "..") for part in parts)
        and name.isprintable()
    )
