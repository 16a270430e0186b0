"""The token of a hub: in no message, and never sent unencrypted."""

import pytest

from benchmarks.errors import RequestError
from launch.assets import hub_access
from launch.assets.byte_progress import size_text
from launch.assets.hub_access import Access

TOKEN = "hf_a-token-that-must-not-be-seen"


def test_a_token_that_cannot_be_one_is_refused_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}\nX-Evil: 1")
    with pytest.raises(RequestError) as caught:
        hub_access.from_environment()
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(Access(token=TOKEN))


def test_a_token_is_not_sent_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example")
    with pytest.raises(RequestError, match="unencrypted"):
        hub_access.from_environment()
    monkeypatch.delenv("HF_TOKEN")
    assert hub_access.from_environment().token is None


@pytest.mark.parametrize(("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1.5e6, "1.5 MB"), (747e9, "747 GB")])
def test_sizes_are_decimal(size: float, text: str) -> None:
    assert size_text(size) == text
