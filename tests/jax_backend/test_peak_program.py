"""The peak program of JAX: how it multiplies, on a stand-in for jax that writes down what it is asked."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from jax_backend.inside import peak_program


class Array:
    def astype(self, _: str) -> "Array":
        return self

    def block_until_ready(self) -> "Array":
        return self


class Jitted:
    """What jax.jit returns; it is compiled by calling it."""

    def __init__(self, function: Any) -> None:
        self.call = function

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def lower(self, *arguments: Any) -> Any:
        self.call(*arguments)
        return SimpleNamespace(compile=lambda: self.call)


@pytest.mark.parametrize(("dtype", "precision"), [("fp32", "highest"), ("bf16", None), ("fp8", None)])
def test_fp32_is_no_tf32(monkeypatch: pytest.MonkeyPatch, dtype: str, precision: str | None) -> None:
    asked: dict[str, Any] = {}
    jax = SimpleNamespace(
        jit=Jitted,
        local_devices=lambda: ["the first"],
        numpy=SimpleNamespace(bfloat16="bfloat16"),
        random=SimpleNamespace(key=lambda *_, **__: None, uniform=lambda *_: Array()),
        lax=SimpleNamespace(
            Precision=SimpleNamespace(HIGHEST="highest"), dot_general=lambda *_, **named: asked.update(named)
        ),
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    peak_program.Jax("cpu").matmul(dtype, {"m": 2, "k": 3, "n": 4})
    assert asked["precision"] == precision
