"""The matmul rate that a device reaches: the request to a backend, its report, and the peaks that follow.

The peak of a precision is the highest median of any shape. The rate of the model is the FLOPs of its own matmuls over
the time that they take at their medians.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from benchmarks.model.flops import LAYER_MATRICES
from benchmarks.values import Model, Value

SQUARE = "square"
LARGEST_SQUARE = 8192  # from here on a larger one is no faster on the GPUs whose rates are published
LARGEST_SQUARE_ON_A_CPU = 4096
ROWS = 4096  # the tokens of one sequence of the published runs
ROWS_A_CORE = 64  # of a CPU: some seconds for a pass over the matmuls of a 70B model
TURNS = 5
FEWEST_TURNS = 3  # of a shape that takes too long for all of them
PRECISIONS = ("bf16", "fp32", "fp8")

Rates = Annotated[list[Annotated[float, msgspec.Meta(gt=0)]], msgspec.Meta(min_length=1)]
Size = Annotated[int, msgspec.Meta(gt=0)]


class MatmulShape(Value, frozen=True):
    """[m, k] x [k, n], and which matmul of a model that is."""

    name: str
    m: Size
    k: Size
    n: Size
    count: Annotated[int, msgspec.Meta(ge=0)] = 0  # of it in one pass through the model; 0: it is no model's

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.k * self.n

    def text(self) -> str:
        return f"[{self.m}, {self.k}] x [{self.k}, {self.n}]"


class PeakRequest(Value, frozen=True):
    """What to measure: every shape in every precision, each for so long, in turns."""

    shapes: list[MatmulShape]
    dtypes: list[str]
    seconds: float  # of each shape and precision, all turns together
    turns: int
    fewest_turns: int = FEWEST_TURNS  # where one call alone takes longer than a turn should


class MeasuredRate(Value, frozen=True):
    """One shape in one precision: TFLOP/s of one device, of each turn."""

    shape: MatmulShape
    dtype: str
    tflops: Rates

    @property
    def median(self) -> float:
        return statistics.median(self.tflops)

    @property
    def spread(self) -> float | None:
        """From the slowest turn to the fastest, as a share of the median; None where one turn tells of no other."""
        if len(self.tflops) < 2:
            return None
        return (max(self.tflops) - min(self.tflops)) / self.median


def spread_text(spread: float | None) -> str:
    return "-" if spread is None else f"{spread:.1%}"


class PeakReport(Value, frozen=True):
    """What a backend's program measured."""

    device_kind: str
    platform: str
    versions: dict[str, str]
    rates: list[MeasuredRate]
    refused: dict[str, str]  # precision -> why it could not be measured here
    notes: list[str] = []
    threads: int | None = None  # of a CPU; None on another device
    devices: int = 1  # of this kind in this machine, as the framework sees them
    memory_gb: float | None = None  # of one device, where the framework says it


class DevicePeak(Value, frozen=True):
    """What one precision comes to. `tflops` is the peak; `of` is the shape that reached it."""

    tflops: float
    of: str
    turns: int
    spread: float | None  # None: of one turn it is not known
    model_tflops: float | None  # None where the shapes are no model's


# --- what to measure ----------------------------------------------------------------------------


def shapes_of(model: Model, rows: int, square: int) -> list[MatmulShape]:
    """Every matmul with weights of a model as the frameworks run it (query, key and value in one; gate and up in
    one), for so many tokens, and a square one as a reference.
    """
    matrices = {name: (sizes(model), model.layers) for name, sizes in LAYER_MATRICES.items()}
    matrices["head"] = ((model.hidden_size, model.vocabulary_size), 1)
    own = [MatmulShape(name=name, m=rows, k=k, n=n, count=count) for name, ((k, n), count) in matrices.items()]
    return [*own, MatmulShape(name=SQUARE, m=square, k=square, n=square)]


# --- what was measured --------------------------------------------------------------------------


def device_peaks(rates: Iterable[MeasuredRate]) -> dict[str, DevicePeak]:
    """The peak of each precision, in the order in which they were measured."""
    by_dtype: dict[str, list[MeasuredRate]] = {}
    for rate in rates:
        by_dtype.setdefault(rate.dtype, []).append(rate)
    found = {}
    for dtype, own in by_dtype.items():
        best = max(own, key=lambda rate: rate.median)
        found[dtype] = DevicePeak(
            tflops=best.median,
            of=best.shape.name,
            turns=len(best.tflops),
            spread=best.spread,
            model_tflops=model_rate(own),
        )
    return found


def model_rate(rates: Sequence[MeasuredRate]) -> float | None:
    """The FLOPs of all matmuls of a model over the time that they take; None where none is a model's."""
    flops = math.fsum(rate.shape.flops * rate.shape.count for rate in rates)
    time = math.fsum(rate.shape.flops * rate.shape.count / rate.median for rate in rates)
    return flops / time if time else None
