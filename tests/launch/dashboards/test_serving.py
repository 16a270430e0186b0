"""Updates while TensorBoard serves: what is wrong with one is said, and nothing ends the server."""

import os
import tempfile
import urllib.request
from pathlib import Path

import pytest

from benchmarks.dashboard.folders import STATE
from benchmarks.errors import RequestError
from launch.dashboards.serving import Refresh, tensorboard


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RequestError("no such folder", where="here"), "no such folder"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OverflowError("int too big to convert"), "OverflowError: int too big to convert"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
    ],
)
def test_whatever_is_wrong_is_said_once_and_the_next_update_comes(
    error: Exception, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def update() -> list[str]:
        calls.append(1)
        if len(calls) in (1, 2, 4):
            raise error
        return []

    refresh = Refresh(update)
    said = []
    for _ in range(4):
        refresh()
        said.append(capsys.readouterr().err)
    assert [words in text for text in said] == [True, False, False, True]
    assert said[0].startswith("stepmark: not brought up to date: ")
    assert said[1:3] == ["", ""]


@pytest.mark.slow
def test_tensorboard_writes_nothing_into_the_shared_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user made the folder that TensorBoard writes into, with links to files of this user."""
    shared, mine = tmp_path / "tmp", tmp_path / "mine"
    (shared / ".tensorboard-info").mkdir(parents=True)
    mine.write_text("keep")
    here = os.getpid()
    for pid in range(here, here + 2000):
        (shared / f".tensorboard-info/pid-{pid}.info").symlink_to(mine)
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "logs" / STATE).mkdir(parents=True)
    with tensorboard(tmp_path / "logs", "localhost", 0) as (address, _):
        assert urllib.request.urlopen(address, timeout=30).status == 200
    assert mine.read_text() == "keep"
    assert len(list((shared / ".tensorboard-info").iterdir())) == 2000
