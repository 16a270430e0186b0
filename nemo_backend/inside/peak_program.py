"""Measure the matmul rate of one device with torch. As in Megatron, weights have the shape [out, in].

This program runs by path inside the framework's environment, with only the standard library and torch:
`python -P peak_program.py --platform=cuda FOLDER`; see benchmarks/inside/peak_turns.py.
"""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import peak_turns as turns  # noqa: E402

FP8_WAY = "fp8: one scale per tensor, e4m3 in, bf16 out, fast accumulation as in Transformer Engine's forward pass"


class Torch(turns.Device):
    """The device that the worker uses: the first GPU, or all cores of the CPU."""

    def __init__(self, platform: str) -> None:
        super().__init__(platform)
        self._torch: Any = import_module("torch")
        self._torch.set_float32_matmul_precision("highest")  # full fp32 instead of TF32
        if self.on_cpu:
            self._torch.set_num_threads(turns.cores())
        elif not self._torch.cuda.is_available():
            raise SystemExit(f"torch {self._torch.__version__} finds no GPU here")

    def facts(self) -> dict[str, Any]:
        return {
            "device_kind": "cpu" if self.on_cpu else self._torch.cuda.get_device_name(),
            "platform": self.platform,
            "versions": {"torch": self._torch.__version__},
            "threads": self._torch.get_num_threads() if self.on_cpu else None,
        }

    def matmul(self, dtype: str, shape: dict[str, Any]) -> Callable[[int], float]:
        torch = self._torch
        left = self._matrix((shape["m"], shape["k"]), dtype)
        weights = self._matrix((shape["n"], shape["k"]), dtype)
        if dtype != "fp8":
            return self._timer(lambda: torch.nn.functional.linear(left, weights))
        self.notes.append(FP8_WAY)
        one = torch.ones((), device=left.device)
        scaled = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return self._timer(lambda: torch._scaled_mm(left, weights.t(), **scaled))

    def _matrix(self, size: tuple[int, int], dtype: str) -> Any:
        """Return a random matrix, because a GPU is faster on zeros."""
        device = "cpu" if self.on_cpu else "cuda"
        made = self._torch.empty(size, dtype=self._torch.bfloat16, device=device).uniform_(-1, 1)
        return made.to(getattr(self._torch, turns.TYPES[dtype]))

    def _timer(self, call: Callable[[], Any]) -> Callable[[int], float]:
        """Return a function that times a number of calls, including the work of the GPU after the calls return."""
        torch = self._torch

        def timed(calls: int) -> float:
            with torch.inference_mode():
                start = time.perf_counter()
                for _ in range(calls):
                    call()
                if not self.on_cpu:
                    torch.cuda.synchronize()
                return time.perf_counter() - start

        return timed


if __name__ == "__main__":
    turns.main(Torch, sys.argv[1:])
