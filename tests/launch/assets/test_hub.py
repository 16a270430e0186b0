"""The token of a hub: in no message, and never sent unencrypted."""

import pytest

from benchmarks.errors import RequestError
from launch.assets import hub

TOKEN = "hf_a-token-that-must-not-be-seen"


@pytest.mark.parametrize(
    ("token", "endpoint", "words"),
    [
        (f"{TOKEN}\nX-Evil: 1", "https://mirror.example", "invalid characters"),
        (TOKEN, "http://mirror.example", "unencrypted"),
        (TOKEN, "ftp://mirror.example", "must be https://HOST"),
        (TOKEN, f"https://user:{TOKEN}@mirror.example", "must be https://HOST"),
    ],
)
def test_what_would_give_the_token_away_is_refused(
    token: str, endpoint: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(RequestError, match=words) as refused:
        hub.from_environment()
    assert TOKEN not in str(refused.value)


def test_a_token_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TOKEN not in repr(hub.Access(token=TOKEN))
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert hub.from_environment().token is None
