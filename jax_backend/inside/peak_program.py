"""Measure the matmul rate of one device with JAX. As in MaxText, the right matrix has the shape [in, out].

This program runs by path inside the framework's environment, with only the standard library and jax:
`python -P peak_program.py --platform=cuda FOLDER`; see benchmarks/inside/peak_turns.py.
"""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import peak_turns as turns  # noqa: E402

FIRST_WITH_FP8 = 8.9  # compute capability of CUDA
FP8_CALL = "matmul$f8"  # the name of cuBLAS's fp8 matmul in a compiled program


class Jax(turns.Device):
    """The first device of the platform that jax uses."""

    def __init__(self, platform: str) -> None:
        super().__init__(platform)
        self._jax: Any = import_module("jax")
        try:
            self._device = self._jax.local_devices()[0]
        except (RuntimeError, AssertionError) as error:  # AssertionError: jax has no plugin for the platform
            why = turns.first_line(error)
            raise SystemExit(f"jax {self._jax.__version__} has no {platform} device here: {why}") from None

    def facts(self) -> dict[str, Any]:
        return {
            "device_kind": self._device.device_kind,
            "platform": self.platform,
            "versions": {"jax": self._jax.__version__, "jaxlib": version("jaxlib")},
            "threads": turns.cores() if self.on_cpu else None,
        }

    def matmul(self, dtype: str, shape: dict[str, Any]) -> Callable[[int], float]:
        m, k, n = shape["m"], shape["k"], shape["n"]
        on_gpu_in_fp8 = dtype == "fp8" and self.platform == "cuda"
        if on_gpu_in_fp8 and float(self._device.compute_capability) < FIRST_WITH_FP8:
            raise RuntimeError(f"a GPU of compute capability {self._device.compute_capability} has no fp8")
        transposed = dtype == "fp8"  # the only layout in which cuBLAS multiplies fp8
        left = self._matrix(0, (m, k), dtype)
        right = self._matrix(1, (n, k) if transposed else (k, n), dtype)
        compiled = self._jax.jit(self._dot(dtype, transposed)).lower(left, right).compile()
        if on_gpu_in_fp8 and FP8_CALL not in compiled.as_text():
            self.notes.append("fp8: the compiled program does not call cuBLAS, so this may be another kernel's rate")
        return self._timer(lambda: compiled(left, right))

    def _matrix(self, seed: int, size: tuple[int, int], dtype: str) -> Any:
        """Return a random matrix, because a GPU multiplies zeros faster."""
        random, jnp = self._jax.random, self._jax.numpy

        def made(key: Any) -> Any:
            return random.uniform(key, size, jnp.bfloat16, -1, 1).astype(turns.TYPES[dtype])

        return self._jax.jit(made)(random.key(seed, impl="rbg")).block_until_ready()

    def _dot(self, dtype: str, transposed: bool) -> Callable[[Any, Any], Any]:
        contracted = (((1,), (1 if transposed else 0,)), ((), ()))
        result = turns.TYPES["bf16" if dtype == "fp8" else dtype]
        lax = self._jax.lax
        precision = lax.Precision.HIGHEST if dtype == "fp32" else None  # as in the recipes; a GPU defaults to TF32
        return lambda left, right: lax.dot_general(
            left, right, contracted, precision=precision, preferred_element_type=result
        )

    def _timer(self, call: Callable[[], Any]) -> Callable[[int], float]:
        """Return a function that times N calls. On a CPU, wait for each call, because several may run at once."""

        def timed(calls: int) -> float:
            start = time.perf_counter()
            for _ in range(calls):
                result = call()
                if self.on_cpu:
                    result.block_until_ready()
            result.block_until_ready()
            return time.perf_counter() - start

        return timed


if __name__ == "__main__":
    turns.main(Jax, sys.argv[1:])
