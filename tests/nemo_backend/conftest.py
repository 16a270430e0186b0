"""What the tests of the engine nemo share: resolved benchmarks, the files that run inside NeMo, and fake modules."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.configs import Configs
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark
from nemo_backend import BACKEND

HERE = Path(BACKEND.environment("nemo").locks[0].path).parent


@pytest.fixture(scope="session")
def resolved() -> Callable[..., Benchmark]:
    """A request as a benchmark, on the real configs; `chosen` are settings of --set."""

    def resolve_it(
        model: str = "llama3_tiny", chosen: Mapping[str, object] | None = None, **wanted: Any
    ) -> Benchmark:
        typed = {name: str(value) for name, value in (chosen or {}).items()}
        return resolve(Request(backend="nemo", model=model, settings=typed, **wanted), Configs(), BACKEND)

    return resolve_it


@pytest.fixture
def put_modules(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, Mapping[str, Any]]], None]:
    """Stands in for modules that are not installed here: {"torch.cuda": {"is_available": ...}}, parents too."""

    def put(modules: Mapping[str, Mapping[str, Any]]) -> None:
        made: dict[str, ModuleType] = {}
        for path in modules:
            parts = path.split(".")
            for end in range(1, len(parts) + 1):
                name = ".".join(parts[:end])
                made.setdefault(name, ModuleType(name))
        for name, module in made.items():
            vars(module).update(modules.get(name, {}))
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(made[parent], child, module)
            monkeypatch.setitem(sys.modules, name, module)

    return put
