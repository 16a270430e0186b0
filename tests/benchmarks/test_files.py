"""Files that anybody may have put there: each is read, or refused at once in one sentence."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import files

HOSTILE: dict[str, Callable[[Path], object]] = {
    "device": lambda path: path.symlink_to("/dev/zero"),
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "deep": lambda path: path.write_text('{"a":' * 200_000),
    "bytes": lambda path: path.write_bytes(b"\xff\xac\x00"),
    "empty": Path.touch,
}


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "loop"])
def test_what_cannot_be_read_whole_is_refused_and_nothing_is_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "benchmark.json"
    HOSTILE[kind](path)
    with pytest.raises(OSError) as refused:
        files.read(path)
    assert refused.value.strerror
    assert refused.value.filename == str(path)


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10)
    assert files.read(tmp_path / "file") == b"x" * 10


@pytest.mark.parametrize("kind", ["deep", "bytes", "empty"])
def test_what_is_no_json_of_the_form_is_one_kind_of_error(tmp_path: Path, kind: str) -> None:
    HOSTILE[kind](tmp_path / "benchmark.json")
    with pytest.raises(ValueError, match=r"."):
        files.read_json(tmp_path / "benchmark.json", dict[str, object])


def test_every_file_of_json_is_read_by_the_one_reader() -> None:
    """Otherwise a deeply nested or endless file stops a command with a traceback."""
    found = re.compile(r"json\.(?:decode|loads)\([^\n]*\.read_(?:bytes|text)\(|json\.load\(\w*(?:stream|file)")
    root = Path(__file__).resolve().parents[2]
    sources = (
        path
        for name in ("benchmarks", "launch", "jax_backend", "nemo_backend")
        for path in root.glob(f"{name}/**/*.py")
    )
    others = [path for path in sources if path.parent.name != "inside" and found.search(path.read_text())]
    assert others == []
