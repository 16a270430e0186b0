"""Define the measurement of matmul peaks: the request to a backend, its report, and the resulting peaks.

The peak of a precision is the median rate of its fastest shape.
"""

import statistics
from collections.abc import Iterable
from typing import Annotated

import msgspec

from benchmarks.model.flops import LAYER_MATRICES
from benchmarks.values import Model, Positive, Value

LARGEST_SQUARE = 8192  # on the GPUs with published rates, larger matmuls are not faster
LARGEST_SQUARE_ON_A_CPU = 4096
ROWS = 4096  # the tokens of one sequence in published runs
ROWS_A_CORE = 64  # few rows, so that one pass over the matmuls of a 70B model takes seconds on a CPU
TURNS = 5
PRECISIONS = ("bf16", "fp32", "fp8")

Rates = Annotated[list[Annotated[float, msgspec.Meta(gt=0)]], msgspec.Meta(min_length=1)]


class MatmulShape(Value, frozen=True):
    """A matmul [m, k] x [k, n], with the name of the model's layer that uses it."""

    name: str
    m: Positive
    k: Positive
    n: Positive

    def text(self) -> str:
        return f"[{self.m}, {self.k}] x [{self.k}, {self.n}]"


class PeakRequest(Value, frozen=True):
    """What to measure: every shape in every precision, with interleaved turns."""

    shapes: list[MatmulShape]
    dtypes: list[str]
    seconds: float  # the time to spend on each shape and precision, over all turns
    turns: int


class MeasuredRate(Value, frozen=True):
    """The measured rates of one shape in one precision: TFLOP/s of one device in each turn (repetition)."""

    shape: MatmulShape
    dtype: str
    tflops: Rates

    @property
    def median(self) -> float:
        return statistics.median(self.tflops)

    @property
    def spread(self) -> float | None:
        """Return highest minus lowest rate as a share of the median; None for a single turn."""
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
    threads: int | None = None  # the number of threads of a CPU; None for other devices


class DevicePeak(Value, frozen=True):
    """The peak of one precision, and the shape that reached it."""

    tflops: float
    of: str
    turns: int
    spread: float | None  # None: there was a single turn


def shapes_of(model: Model, rows: int, square: int) -> list[MatmulShape]:
    """Return the shapes of a model's matmuls with weights for `rows` tokens, then a square matmul as a reference.
    Frameworks compute query, key and value in one matmul, and gate and up in another one, so this function does too.
    """
    # The projections of latent attention are too small to reach the peak.
    left = "query_key_value" if model.attention.latent else None
    matrices = {name: sizes(model) for name, sizes in LAYER_MATRICES.items() if name != left}
    matrices["head"] = (model.hidden_size, model.vocabulary_size)
    own = [MatmulShape(name=name, m=rows, k=k, n=n) for name, (k, n) in matrices.items()]
    return [*own, MatmulShape(name="square", m=square, k=square, n=square)]


def device_peaks(rates: Iterable[MeasuredRate]) -> dict[str, DevicePeak]:
    """Return the peak of each precision, in the order in which the precisions were measured."""
    found: dict[str, MeasuredRate] = {}
    for rate in rates:
        if rate.dtype not in found or rate.median > found[rate.dtype].median:
            found[rate.dtype] = rate
    return {
        dtype: DevicePeak(tflops=best.median, of=best.shape.name, turns=len(best.tflops), spread=best.spread)
        for dtype, best in found.items()
    }
