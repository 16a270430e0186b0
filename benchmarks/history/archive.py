"""Runs as one file that another machine can check: RUNS.tar.gz with the sha256 of every file in it.

First manifest.json (every file's size and sha256), then SHA256SUMS (the same for `sha256sum -c`, the manifest's own
included), then runs/NAME/... The same runs give the same bytes: no times, owners or modes are kept. Left out of a run
is what is no proof of anything: tensorboard/, which is made from the steps; and, by name, links and files with a dot
before their name, which are just being written or somebody's own. Raw files go in as they are, for their digests:
which of them hold what looks like a secret is told.
"""

import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

import msgspec

from benchmarks import VERSION
from benchmarks.errors import RequestError, RunError
from benchmarks.files import NOT_JSON, read
from benchmarks.secret_rules import hidden_in_log
from benchmarks.values import Value, json_text

MANIFEST, SUMS, RUNS = "manifest.json", "SHA256SUMS", "runs"
LEFT_OUT = ("tensorboard",)
SCHEMA_VERSION = 1
LOOKED_AT_BYTES = 1 << 20  # of each end of a file, for secrets
MOST_TIMES, LEAST_CAP_BYTES = 100, 1 << 30  # what an archive may unpack to: of its size, and anyway
_RUN_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
_NOT_SOUND = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, *NOT_JSON)


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


class Packed(NamedTuple):
    manifest: Manifest
    manifest_sha256: str
    skipped: list[str]  # links, files with a dot before their name and the like, by their paths
    secrets: list[str]  # files that hold what looks like a secret, as they are called in the archive


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
        with (
            temporary.open("xb") as raw,
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
            tarfile.open(fileobj=cast("IO[bytes]", packed), mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            _pack(tar, data, manifest, sources)
        temporary.replace(target)
    except OSError as error:
        raise RunError(f"the archive could not be written: {error.strerror or error}", where=str(target)) from None
    finally:
        temporary.unlink(missing_ok=True)
    secrets = [name for name, path in sources.items() if _holds_a_secret(path)]
    return Packed(manifest, hashlib.sha256(data).hexdigest(), skipped, secrets)


def _pack(tar: tarfile.TarFile, data: bytes, manifest: Manifest, sources: Mapping[str, Path]) -> None:
    for name, text in ((MANIFEST, data), (SUMS, _sums(manifest, data))):
        tar.addfile(_member(name, len(text)), io.BytesIO(text))
    for name, path in sources.items():
        with path.open("rb") as stream:
            tar.addfile(_member(name, manifest.files[name].bytes), stream)
        if _sha256(path) != manifest.files[name].sha256:
            raise RunError("a file was changed while it was archived", where=str(path))


def _sources(folders: Sequence[Path]) -> tuple[dict[str, Path], list[str]]:
    sources: dict[str, Path] = {}
    skipped: list[str] = []
    names = [folder.name for folder in folders]
    for folder in sorted(folders, key=lambda folder: folder.name):
        if not _RUN_NAME.fullmatch(folder.name) or names.count(folder.name) > 1:
            raise RequestError("two runs have this name, or it is none of a run", where=str(folder))
        for path in _files(folder):
            relative = path.relative_to(folder).as_posix()
            if relative.partition("/")[0] in LEFT_OUT:
                continue
            if path.name.startswith(".") or path.is_symlink() or not path.is_file() or not relative.isprintable():
                skipped.append(str(path).encode(errors="backslashreplace").decode())
            else:
                sources[f"{RUNS}/{folder.name}/{relative}"] = path
    return dict(sorted(sources.items())), skipped


def _files(folder: Path) -> list[Path]:
    """All but folders: links and devices too."""
    return [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]


def _holds_a_secret(path: Path) -> bool:
    """In the first or the last part of a text; what is no text is not looked at."""
    with path.open("rb") as stream:
        first = stream.read(LOOKED_AT_BYTES)
        if b"\0" in first:
            return False
        stream.seek(max(len(first), path.stat().st_size - LOOKED_AT_BYTES))
        last = stream.read(LOOKED_AT_BYTES)
    return any(hidden_in_log(text) != text for text in (first, last))


def _member(name: str, size: int) -> tarfile.TarInfo:
    """Nothing of this machine: no time, no owner."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


def _sums(manifest: Manifest, manifest_data: bytes) -> bytes:
    lines = [f"{hashlib.sha256(manifest_data).hexdigest()}  {MANIFEST}"]
    lines += [f"{file.sha256}  {name}" for name, file in manifest.files.items()]
    return "".join(f"{line}\n" for line in lines).encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- reading --------------------------------------------------------------------------------------


class Unpacked(NamedTuple):
    manifest: Manifest | None  # None: there is none that could be read
    manifest_sha256: str | None
    differences: list[str]  # from what was written, each in a sentence; none: it is whole


def unpack(archive: Path, target: Path) -> Unpacked:
    """Unpacks below `target`, and checks every file. OSError: what cannot be read, or not be written."""
    try:
        _refuse_bomb(archive)
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(target, filter="data")
        data = read(target / MANIFEST)
        manifest = msgspec.json.decode(data, type=Manifest)
        if not manifest.files or manifest.schema_version != SCHEMA_VERSION:
            raise ValueError(f"{MANIFEST} names no file of a run, or is of another version than {SCHEMA_VERSION}")
        differences = list(_differences(target, manifest, data))
    except FileNotFoundError:
        return Unpacked(None, None, [f"it has no {MANIFEST}"])
    except _NOT_SOUND as error:
        why = f"it is cut off, damaged, or no archive of runs: {str(error) or type(error).__name__}"
        return Unpacked(None, None, [why])
    return Unpacked(manifest, hashlib.sha256(data).hexdigest(), differences)


def _refuse_bomb(archive: Path) -> None:
    """ValueError where it unpacks to far more than logs do. It is read to its end, where gzip's own checksum is."""
    most = max(LEAST_CAP_BYTES, MOST_TIMES * archive.stat().st_size)
    unpacked = 0
    with gzip.open(archive) as stream:
        while block := stream.read(1 << 20):
            unpacked += len(block)
            if unpacked > most:
                raise ValueError(f"it unpacks to more than {most:,} bytes; sha256sum -c {SUMS} checks one by hand")


def _differences(target: Path, manifest: Manifest, data: bytes) -> Iterator[str]:
    found = {path.relative_to(target).as_posix(): path for path in _files(target)}
    sums = _sums(manifest, data)
    expected = {name: file.sha256 for name, file in manifest.files.items()}
    expected |= {MANIFEST: hashlib.sha256(data).hexdigest(), SUMS: hashlib.sha256(sums).hexdigest()}
    for name, path in sorted(found.items()):
        if path.is_symlink() or not path.is_file():
            yield f"{name} is no plain file"
        elif name not in expected:
            yield f"{name} was added: {MANIFEST} does not name it"
        elif _sha256(path) != expected[name]:
            yield f"{name} was changed: its sha256 is another"
    yield from (f"{name} is missing" for name in sorted(expected.keys() - found.keys()))
