"""Defines the measurement of matmul peaks: the request to a backend, its report, and the resulting peaks.

The peak of a precision is the highest of the shapes' median rates.
"""

import statistics
from collections.abc import Iterable
from typing import Annotated

import msgspec

from benchmarks.model.flops import LAYER_MATRICES
from benchmarks.values import Model, Positive, Value

LARGEST_SQUARE = 8192  # larger matmuls are not faster on the GPUs with published rates
LARGEST_SQUARE_ON_A_CPU = 4096
ROWS = 4096  # the tokens of one sequence in the published runs
ROWS_A_CORE = 64  # for CPUs, so that one pass over the matmuls of a 70B model takes seconds
TURNS = 5
PRECISIONS = ("bf16", "fp32", "fp8")

Rates = Annotated[list[Annotated[float, msgspec.Meta(gt=0)]], msgspec.Meta(min_length=1)]


class MatmulShape(Value, frozen=True):
    """A matmul [m, k] x [k, n], with the name of the model's matmul."""

    name: str
    m: Positive
    k: Positive
    n: Positive

    def text(self) -> str:
        return f"[{self.m}, {self.k}] x [{self.k}, {self.n}]"


class PeakRequest(Value, frozen=True):
    """The measurements: every shape in every precision, interleaved."""

    shapes: list[MatmulShape]
    dtypes: list[str]
    seconds: float  # the time for each shape and precision, over all turns
    turns: int


class MeasuredRate(Value, frozen=True):
    """One shape in one precision: TFLOP/s of one device in each turn (repeated measurement)."""

    shape: MatmulShape
    dtype: str
    tflops: Rates

    @property
    def median(self) -> float:
        return statistics.median(self.tflops)

    @property
    def spread(self) -> float | None:
        """Return the range over the turns as a share of the median; None for a single turn."""
        if len(self.tflops) < 2:
            return None
        return (max(self.tflops) - min(self.tflops)) / self.median


def spread_text(spread: float | None) -> str:
    return "-" if spread is None else f"{spread:.1%}"


class PeakReport(Value, frozen=True):
    """The measurements that a backend's program reports."""

    device_kind: str
    platform: str
    versions: dict[str, str]
    rates: list[MeasuredRate]
    refused: dict[str, str]  # precision -> why it could not be measured on this device
    notes: list[str] = []
    threads: int | None = None  # the threads of a CPU; None for other devices


class DevicePeak(Value, frozen=True):
    """The peak of one precision, and the shape that reached it."""

    tflops: float
    of: str
    turns: int
    spread: float | None  # None: there was a single turn


def shapes_of(model: Model, rows: int, square: int) -> list[MatmulShape]:
    """Return all matmuls with weights of a model, for this number of tokens, and a square matmul as a reference. As
    in the frameworks, query, key and value are one matmul, and so are gate and up.
    """
    matrices = {name: sizes(model) for name, sizes in LAYER_MATRICES.items()}
    matrices["head"] = (model.hidden_size, model.vocabulary_size)
    own = [MatmulShape(name=name, m=rows, k=k, n=n) for name, (k, n) in matrices.items()]
    return [*own, MatmulShape(name="square", m=square, k=square, n=square)]


def device_peaks(rates: Iterable[MeasuredRate]) -> dict[str, DevicePeak]:
    """Return the peak of each precision, in the order of measurement."""
    found: dict[str, MeasuredRate] = {}
    for rate in rates:
        if rate.dtype not in found or rate.median > found[rate.dtype].median:
            found[rate.dtype] = rate
    return {
        dtype: DevicePeak(tflops=best.median, of=best.shape.name, turns=len(best.tflops), spread=best.spread)
        for dtype, best in found.items()
    }
