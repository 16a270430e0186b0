"""What stands inside MaxText for adapters: the hook, the order of looks, and what a run without a look is told."""

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

HERE = Path(__file__).resolve().parents[2]


def by_path(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"stepmark_{path.stem}_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def adapters() -> Any:
    return by_path(HERE / "jax_backend" / "inside" / "adapters.py")


@pytest.fixture(scope="module")
def kit() -> Any:
    return by_path(HERE / "benchmarks" / "inside" / "worker_kit.py")


class Events:
    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def write(self, event: str, **fields: Any) -> None:
        self.written.append({"event": event, **fields})


def test_each_model_that_is_made_passes_through_maxtexts_own_function(adapters: Any) -> None:
    made: list[tuple[Any, ...]] = []
    creation = ModuleType("model_creation_utils")
    creation.get_nnx_create_model_fn = (  # type: ignore[attr-defined]
        lambda config, mesh=None, **named: lambda: (config, mesh, named)
    )
    lora = SimpleNamespace(apply_lora_to_model=lambda *given: made.append(given) or "with adapters")
    adapters.put_beside(creation, lora)
    make = creation.get_nnx_create_model_fn("config", "mesh", rngs=1)
    assert made == []  # MaxText calls what it is given, more than once
    assert make() == make() == "with adapters"
    assert made == [(("config", "mesh", {"rngs": 1}), None, "config")] * 2


def proven(adapters: Any, kit: Any, states: list[tuple[dict[str, Any], dict[str, Any]]]) -> Any:
    """Of a run whose state is replaced by each step; the looks that it takes are those given."""
    found = adapters.Adapters(kit, Events(), 0)
    adapters.looks_of = lambda state, _look: states[state]
    device_state = {"state": {"model": 0}}
    found.begin(device_state)
    device_state["state"] = {"model": 1}
    found.finish()
    return found


def test_the_last_state_is_looked_at_not_the_first(adapters: Any, kit: Any) -> None:
    before = {"a": kit.Look(1, 4.0)}, {"w": kit.Look(2, 9.0)}
    found = proven(adapters, kit, [before, ({"a": kit.Look(5, 1.0)}, {"w": kit.Look(2, 9.0)})])
    assert found.failures() == []
    assert found.notes() == ["adapters on rank 0: 1 of 1 tensors changed; 0 of 1 frozen tensors changed"]
    same = proven(adapters, kit, [before, before])
    assert same.failures() == ["1 of 1 adapters did not change (first: a)"]


def test_a_model_without_adapters_proves_nothing(adapters: Any, kit: Any) -> None:
    state: tuple[dict[str, Any], dict[str, Any]] = ({}, {"w": kit.Look(2, 9.0)})
    assert proven(adapters, kit, [state, state]).failures() == ["no adapter was made: nothing was trained"]


def test_a_run_that_ended_without_a_look_is_told(adapters: Any, kit: Any) -> None:
    found = adapters.Adapters(kit, Events(), 0)
    found.finish()
    assert found.failures() == ["training ended before the adapters were checked: nothing is proven about them"]
    assert found.notes() == []
