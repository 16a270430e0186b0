"""What stands inside MaxText for adapters: the hook, the order of looks, and what a run without a look is told."""

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.inside import worker_kit as kit
from jax_backend.inside import adapters


def proven(monkeypatch: pytest.MonkeyPatch, states: list[Any]) -> Any:
    """Of a run whose state is replaced by each step; the looks that it takes are those given."""
    found = adapters.Adapters(kit, SimpleNamespace(write=lambda *_, **__: None), 0)
    monkeypatch.setattr(adapters, "looks_of", lambda state, _look: states[state])
    device_state = {"state": {"model": 0}}
    found.begin(device_state)
    device_state["state"] = {"model": 1}
    found.finish()
    return found


def test_the_last_state_is_looked_at_not_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"a": kit.Look(1, 4.0)}, {"w": kit.Look(2, 9.0)}
    found = proven(monkeypatch, [before, ({"a": kit.Look(5, 1.0)}, {"w": kit.Look(2, 9.0)})])
    assert found.proof.failures == []
    assert found.proof.notes == ["adapters on rank 0: 1 of 1 tensors changed; 0 of 1 frozen tensors changed"]
    assert proven(monkeypatch, [before, before]).proof.failures == ["1 of 1 adapters did not change (first: a)"]
    ended_early = adapters.Adapters(kit, SimpleNamespace(), 0)
    ended_early.finish()
    assert ended_early.proof.failures == [
        "training ended before the adapters were checked: nothing is proven about them"
    ]
