"""The peak program of JAX: how it multiplies, on a stand-in for jax that writes down what it is asked."""

from types import SimpleNamespace
from typing import Any

import pytest

from jax_backend.inside import peak_program


@pytest.mark.parametrize(("dtype", "precision"), [("fp32", "highest"), ("bf16", None), ("fp8", None)])
def test_fp32_is_no_tf32(dtype: str, precision: str | None) -> None:
    asked: dict[str, Any] = {}
    lax = SimpleNamespace(
        Precision=SimpleNamespace(HIGHEST="highest"),
        dot_general=lambda *_, **settings: asked.update(settings),
    )
    program = peak_program.Jax.__new__(peak_program.Jax)
    program._jax = SimpleNamespace(lax=lax)
    program._dot(dtype, transposed=False)("left", "right")
    assert asked["precision"] == precision
