"""Updates while TensorBoard serves: what is wrong with one is said, and nothing ends the server."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.errors import RunError
from launch.dashboards import serving


def test_the_log_is_not_written_through_a_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("before")
    (tmp_path / serving.STATE).mkdir()
    (tmp_path / serving.STATE / serving.LOG).symlink_to(tmp_path / "mine")
    monkeypatch.setattr(serving.subprocess, "Popen", Mock())
    monkeypatch.setattr(serving, "_address", Mock(return_value="http://here"))
    with serving.tensorboard(tmp_path, "localhost", 0):
        assert (tmp_path / "mine").read_text() == "before"


def test_a_trouble_is_printed_once_and_the_next_update_comes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    full = OSError(28, "No space left on device")
    update = Mock(side_effect=[full, full, ["a folder is left out"], ZeroDivisionError("division by zero")])
    server = Mock(poll=Mock(side_effect=lambda: 1 if update.call_count == 4 else None))
    (tmp_path / "log").write_text("ended\n")
    with pytest.raises(RunError, match="has ended: ended"):
        serving.watch(server, tmp_path / "log", update, [], 0.001)
    assert capsys.readouterr().err.splitlines() == [
        "stepmark: not updated: OSError: [Errno 28] No space left on device",
        "stepmark: a folder is left out",
        "stepmark: not updated: ZeroDivisionError: division by zero",
    ]
