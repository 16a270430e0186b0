"""Updates while TensorBoard serves: what is wrong with one is said, and nothing ends the server."""

import pytest

from benchmarks.errors import RequestError
from launch.dashboards.serving import Refresh


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
