"""Archive runs as one file that another machine can check: a .tar.gz that contains the sha256 of every file.

The first member is SHA256SUMS, as for `sha256sum -c`. The other members are runs/NAME/... Equal runs give equal
bytes, because times, owners and modes are not stored. Links, files with names that begin with a dot, and tensorboard/
(which is made from the steps) are excluded. Other files are stored unchanged. Possible secrets in them are reported.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from benchmarks.errors import RequestError, RunError
from benchmarks.files import read
from benchmarks.secret_rules import hidden_in_log

SUMS, RUNS = "SHA256SUMS", "runs"
LEFT_OUT = "tensorboard"
SEARCHED_BYTES = 1 << 20  # how much at each end of a file is searched for secrets
_RUN_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
_SUM = re.compile(r"([0-9a-f]{64})  (runs/[^/]+/.+)")
_NOT_SOUND = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError)


class ArchiveContents(NamedTuple):
    """The contents of an archive."""

    sums: Mapping[str, str]  # path in the archive -> sha256 of the file
    sums_sha256: str
    size_bytes: int  # the size of the unpacked files

    @property
    def runs(self) -> list[str]:
        return sorted({PurePosixPath(name).parts[1] for name in self.sums})


# --- writing --------------------------------------------------------------------------------------


class PackResult(NamedTuple):
    archived: ArchiveContents
    skipped: list[str]  # the paths of excluded files, such as links and files with names that begin with a dot
    secrets: list[str]  # the names of archived files that may contain secrets


def write_archive(folders: Sequence[Path], target: Path) -> PackResult:
    """Write the archive atomically. Raise RequestError if the target already exists."""
    if target.exists():
        raise RequestError("the file already exists", where=str(target), why="choose another name, or move the file")
    sources, skipped = _sources(folders)
    sums = {name: _sha256(path) for name, path in sources.items()}
    data = "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with (
            temporary.open("xb") as raw,
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
            tarfile.open(fileobj=cast("IO[bytes]", packed), mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            tar.addfile(_member(SUMS, len(data)), io.BytesIO(data))
            for name, path in sources.items():
                with path.open("rb") as stream:
                    tar.addfile(_member(name, path.stat().st_size), stream)
                if _sha256(path) != sums[name]:
                    raise RunError("a file changed during archiving", where=str(path))
        temporary.replace(target)
    except OSError as error:
        raise RunError(f"the archive could not be written: {error.strerror or error}", where=str(target)) from None
    finally:
        temporary.unlink(missing_ok=True)
    size = sum(path.stat().st_size for path in sources.values())
    secrets = [name for name, path in sources.items() if _holds_a_secret(path)]
    return PackResult(ArchiveContents(sums, hashlib.sha256(data).hexdigest(), size), skipped, secrets)


def _sources(folders: Sequence[Path]) -> tuple[dict[str, Path], list[str]]:
    sources: dict[str, Path] = {}
    skipped: list[str] = []
    names = [folder.name for folder in folders]
    for folder in folders:
        if not _RUN_NAME.fullmatch(folder.name) or names.count(folder.name) > 1:
            raise RequestError("two runs have this name, or it is not a valid name", where=str(folder))
        for path in _files(folder):
            relative = path.relative_to(folder).as_posix()
            if relative.partition("/")[0] == LEFT_OUT:
                continue
            if path.name.startswith(".") or path.is_symlink() or not path.is_file() or not relative.isprintable():
                skipped.append(str(path).encode(errors="backslashreplace").decode())
            else:
                sources[f"{RUNS}/{folder.name}/{relative}"] = path
    return dict(sorted(sources.items())), skipped


def _files(folder: Path) -> list[Path]:
    """Return all paths below a folder, including links and devices, but without folders."""
    return [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]


def _holds_a_secret(path: Path) -> bool:
    """Return whether the first or last part of a text file may contain a secret. Binary files are not searched."""
    with path.open("rb") as stream:
        first = stream.read(SEARCHED_BYTES)
        if b"\0" in first:
            return False
        stream.seek(max(len(first), path.stat().st_size - SEARCHED_BYTES))
        last = stream.read(SEARCHED_BYTES)
    return any(hidden_in_log(text) != text for text in (first, last))


def _member(name: str, size: int) -> tarfile.TarInfo:
    """Return the tar entry of a file, without time and owner."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- reading --------------------------------------------------------------------------------------


class UnpackResult(NamedTuple):
    archived: ArchiveContents | None  # None: the archive has no readable SHA256SUMS
    differences: list[str]  # a sentence for each file that differs; empty if the archive is intact


def unpack(archive: Path, target: Path) -> UnpackResult:
    """Unpack an archive below `target`, and check every file. Raise OSError if a file cannot be read or written."""
    try:
        with gzip.open(archive) as stream:  # reads to the end to check gzip's checksum, which tar does not read
            while stream.read(1 << 20):
                pass
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                _write_plain(tar, member, target)
        data = read(target / SUMS)
        lines = [_SUM.fullmatch(line) for line in data.decode().splitlines()]
        if not lines or not all(lines):
            raise ValueError(f"{SUMS} lists no file of a run, or has an invalid line")
        sums = {line[2]: line[1] for line in lines if line}
    except FileNotFoundError:
        return UnpackResult(None, [f"{SUMS} is missing"])
    except _NOT_SOUND as error:
        why = f"the file is incomplete, damaged, or not an archive of runs: {str(error) or type(error).__name__}"
        return UnpackResult(None, [why])
    differences = list(_differences(target, sums))
    size = sum(path.stat().st_size for path in _files(target))
    return UnpackResult(ArchiveContents(sums, hashlib.sha256(data).hexdigest(), size), differences)


def _write_plain(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Unpack one plain file below `target`. tarfile's filters are not used, because they let links lead outside."""
    path = target / member.name.lstrip("/")
    data = tar.extractfile(member) if member.isfile() and ".." not in path.parts else None
    if data is None:
        raise tarfile.ReadError(f"{member.name!r} is not a plain file in the archive's folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        shutil.copyfileobj(data, stream)


def _differences(target: Path, sums: Mapping[str, str]) -> Iterator[str]:
    found = {path.relative_to(target).as_posix(): path for path in _files(target)}
    del found[SUMS]
    for name, path in sorted(found.items()):
        if path.is_symlink() or not path.is_file():
            yield f"{name} is not a plain file"
        elif name not in sums:
            yield f"{name} was added: it is not in {SUMS}"
        elif _sha256(path) != sums[name]:
            yield f"{name} was changed: its sha256 differs"
    yield from (f"{name} is missing" for name in sorted(sums.keys() - found.keys()))
