"""Updates while TensorBoard serves: what is wrong with one is said, and nothing ends the server."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.errors import RunError
from launch.dashboards import serving


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
