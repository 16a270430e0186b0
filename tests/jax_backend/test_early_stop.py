"""How MaxText's processes agree on a last step: through jax's coordination service, which stands in here."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "jax_backend" / "inside" / "early_stop.py"


class Client:
    """Knows what jax's does: a key that is not there is an error of no class of its own."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.trouble = "NOT_FOUND: Config key stepmark/last_step not found."

    def key_value_set(self, key: str, value: str) -> None:
        assert key not in self.kept, "jax refuses a key that is there"
        self.kept[key] = value

    def key_value_try_get(self, key: str) -> str:
        if key not in self.kept:
            raise RuntimeError(self.trouble)
        return self.kept[key]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    found = Client()
    internals = ModuleType("jax._src")
    internals.distributed = SimpleNamespace(global_state=SimpleNamespace(client=found))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    monkeypatch.setitem(sys.modules, "jax._src", internals)
    return found


@pytest.fixture
def channel() -> Any:
    spec = importlib.util.spec_from_file_location("early_stop_under_test", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CoordinationService()


def test_what_one_process_says_another_hears(client: Client, channel: Any) -> None:
    assert channel.heard() is None
    channel.say("17,20")
    assert channel.heard() == "17,20"
    assert list(client.kept.values()) == ["17,20"]


def test_a_service_that_is_gone_is_not_taken_for_silence(client: Client, channel: Any) -> None:
    client.trouble = "UNAVAILABLE: failed to connect to all addresses"
    with pytest.raises(RuntimeError, match="UNAVAILABLE"):
        channel.heard()
