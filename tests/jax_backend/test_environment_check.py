"""How many devices the check of a MaxText job wants on its node; a stand-in for jax has them."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks.inside import worker_kit as kit
from jax_backend.inside import environment_check

devices_here: Any = environment_check.devices_here


class Product:
    """A matrix, and a product of two that is done."""

    def __matmul__(self, other: "Product") -> "Product":
        return other

    def block_until_ready(self) -> None:
        pass


def seen(monkeypatch: pytest.MonkeyPatch, count: int, *, alone: bool) -> Any:
    jax, numpy = ModuleType("jax"), ModuleType("jax.numpy")
    numpy.__dict__.update(ones=lambda *_: Product(), bfloat16=None)
    here = [SimpleNamespace(device_kind="NVIDIA H100 80GB HBM3", platform="gpu")] * count
    jax.__dict__.update(numpy=numpy, local_devices=lambda: here, device_put=lambda array, _: array)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax.numpy", numpy)
    return devices_here(4, alone, ["NVIDIA H100 80GB HBM3"], kit)


def test_processes_with_a_gpu_each_may_be_on_a_node_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, 8, alone=False)["count"] == 8
    with pytest.raises(kit.CheckFailure, match="3 devices are seen"):
        seen(monkeypatch, 3, alone=False)


def test_a_process_that_is_alone_would_take_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, 4, alone=True)["count"] == 4
    with pytest.raises(kit.CheckFailure, match="8 devices are seen"):
        seen(monkeypatch, 8, alone=True)
