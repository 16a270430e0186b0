"""An archive of runs is deterministic, complete or absent, and shows every later change."""

import gzip
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import RunError
from benchmarks.history.archive import SUMS, unpack, write_archive
from tests.benchmarks.history.made_runs import whole_run

Members = list[tuple[tarfile.TarInfo, bytes]]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    found = [whole_run(tmp_path / "results", f"2026112{n}T000000Z-x").path for n in range(2)]
    for path in found:
        (path / "tensorboard").mkdir()
        (path / "tensorboard" / "events").write_text("made from the steps")
        deep = path / "attempt-1" / "perf" / "framework" / ("a_long_name_" * 12)
        deep.mkdir(parents=True)
        (deep / "profile.xplane.pb").write_bytes(bytes(range(256)) * 40)
        (path / ".result.json.7").write_text("half")
    return found


@pytest.fixture
def packed(runs: list[Path], tmp_path: Path) -> Path:
    target = tmp_path / "runs.tar.gz"
    write_archive(runs, target)
    return target


def differences(archive: Path, tmp_path: Path) -> list[str]:
    target = tmp_path / f"unpacked-{len(list(tmp_path.iterdir()))}"
    target.mkdir()
    return unpack(archive, target).differences


def members(archive: Path) -> Members:
    with tarfile.open(archive) as tar:
        found = []
        for member in tar:
            stream = tar.extractfile(member)
            found.append((member, stream.read() if stream else b""))
        return found


def packed_again(archive: Path, change: Callable[[Members], Members]) -> Path:
    """Return a changed archive that is still valid gzip and tar."""
    found = change(members(archive))
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member, data in found:
            member.size = len(data) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return archive


def test_every_file_comes_back_as_it_was(packed: Path, runs: list[Path], tmp_path: Path) -> None:
    found = unpack(packed, tmp_path / "there")
    assert found.differences == []
    assert found.archived is not None
    assert found.archived.runs == [run.name for run in runs]
    unpacked = {
        path.relative_to(tmp_path / "there" / "runs"): path.read_bytes()
        for path in (tmp_path / "there" / "runs").rglob("*")
        if path.is_file()
    }
    for run in runs:
        for path in run.rglob("*"):
            if path.is_file() and "tensorboard" not in path.parts and path.name != ".result.json.7":
                assert unpacked.pop(path.relative_to(run.parent)) == path.read_bytes()
    assert unpacked == {}


def test_the_same_runs_give_the_same_bytes(packed: Path, runs: list[Path], tmp_path: Path) -> None:
    for path in (tmp_path / "results").rglob("*"):
        path.touch()
    write_archive(list(reversed(runs)), tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == packed.read_bytes()


def test_tar_and_sha256sum_can_check_it_too(packed: Path, tmp_path: Path) -> None:
    place = tmp_path / "by_hand"
    place.mkdir()
    subprocess.run(["tar", "xzf", packed], cwd=place, check=True)
    subprocess.run(["sha256sum", "--quiet", "--strict", "-c", SUMS], cwd=place, check=True)


@pytest.mark.parametrize("keep", [0, 5, 10, 300, -9000, -9, -1])
def test_a_cut_file_is_caught(packed: Path, tmp_path: Path, keep: int) -> None:
    packed.write_bytes(packed.read_bytes()[:keep])
    assert differences(packed, tmp_path)


def renamed(found: Members) -> Members:
    found[-1][0].name += "2"
    return found


ADDED = tarfile.TarInfo("runs/20261120T000000Z-x/attempt-1/perf/more.log")


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        (lambda found: [*found, (ADDED, b"x")], ["was added"]),
        (lambda found: found[:-1], ["is missing"]),
        (lambda found: found[1:], ["SHA256SUMS is missing"]),
        (renamed, ["was added", "is missing"]),
    ],
)
def test_added_renamed_and_removed_files_are_caught(
    packed: Path, tmp_path: Path, change: Callable[[Members], Members], messages: list[str]
) -> None:
    found = differences(packed_again(packed, change), tmp_path)
    assert all(any(text in line for line in found) for text in messages), found


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "runs/x/../../../outside", "runs/x"])
def test_nothing_is_written_outside(packed: Path, tmp_path: Path, name: str) -> None:
    """Also where SHA256SUMS names it."""

    def add(found: Members) -> Members:
        named = f"{hashlib.sha256(b'x').hexdigest()}  {name}\n".encode()
        return [(found[0][0], found[0][1] + named), *found[1:], (tarfile.TarInfo(name), b"x")]

    there = tmp_path / "deep" / "there"
    assert unpack(packed_again(packed, add), there).differences
    assert all(there in path.parents for path in tmp_path.rglob("outside"))
    assert not Path("/tmp/outside").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_and_devices_are_refused(packed: Path, tmp_path: Path, kind: bytes) -> None:
    def turned(found: Members) -> Members:
        found[-1][0].type = kind
        found[-1][0].linkname = "/etc/passwd"
        return found

    assert unpack(packed_again(packed, turned), tmp_path / "there").differences
    assert not any(path.is_symlink() for path in (tmp_path / "there").rglob("*"))


def test_no_link_is_followed_however_long_its_way_is(packed: Path, tmp_path: Path) -> None:
    """Beyond PATH_MAX, realpath gives up, and tarfile's own filter of Python 3.11.7 with it."""
    (tmp_path / "mine").write_bytes(b"before")
    letters, deep = "abcdefghijklmnop", "d" * 247

    def add(found: Members) -> Members:
        made = [*found]

        def put(name: str, kind: bytes, to: str = "", data: bytes = b"") -> None:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size, member.mode = kind, to, len(data), 0o755
            made.append((member, data))

        for depth, letter in enumerate(letters):
            put("/".join([*[deep] * depth, deep]), tarfile.DIRTYPE)
            put("/".join([*[deep] * depth, letter]), tarfile.SYMTYPE, deep)
        long_way = "/".join([*letters, "l" * 254])
        put(long_way, tarfile.SYMTYPE, "../" * len(letters))
        put("out", tarfile.SYMTYPE, f"{long_way}/..")
        put("hard", tarfile.LNKTYPE, "out/mine")
        put("hard", tarfile.REGTYPE, "", b"after")
        return made

    assert unpack(packed_again(packed, add), tmp_path / "there").differences
    assert (tmp_path / "mine").read_bytes() == b"before"


# --- writing --------------------------------------------------------------------------------------


def test_links_in_a_run_are_left_out_and_named(runs: list[Path], tmp_path: Path) -> None:
    (runs[0] / "attempt-1" / "secret").symlink_to("/etc/passwd")
    (runs[0] / "elsewhere").symlink_to(tmp_path)
    found = write_archive(runs, tmp_path / "x.tar.gz")
    (runs[1] / "attempt-1" / ".env").write_text("A=1")
    again = write_archive(runs, tmp_path / "y.tar.gz")
    assert sorted(Path(path).name for path in found.skipped) == [*[".result.json.7"] * 2, "elsewhere", "secret"]
    assert ".env" in [Path(path).name for path in again.skipped]
    assert not any("/." in name for name in again.archived.sums)
    assert not any("secret" in name for name in found.archived.sums)


@pytest.mark.parametrize("trouble", ["changed during archiving", "No space left"])
def test_a_run_that_changes_meanwhile_or_a_full_disk_leaves_no_archive(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    log, add = runs[1] / "attempt-1" / "perf" / "rank-0.log", tarfile.TarFile.addfile

    def troubled(*arguments: Any) -> None:
        if trouble.startswith("No space"):
            raise OSError(28, "No space left on device")
        log.write_text("the Framework's own words\n")
        add(*arguments)

    monkeypatch.setattr(tarfile.TarFile, "addfile", troubled)
    with pytest.raises(RunError, match=trouble):
        write_archive(runs, tmp_path / "x.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
