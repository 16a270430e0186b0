"""The peak program of torch: how it multiplies, on a stand-in for torch that writes down what it is asked."""

import sys
from types import SimpleNamespace

import pytest

from nemo_backend.inside import peak_program


def test_fp32_is_no_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    torch = SimpleNamespace(set_float32_matmul_precision=asked.append, set_num_threads=lambda _: None)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    peak_program.Torch("cpu")
    assert asked == ["highest"]
