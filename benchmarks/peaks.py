"""The matmul rate that a device really reaches: what a backend is asked, what it answers, what is made of it. Pure."""

from benchmarks.values import Value


class MatmulShape(Value, frozen=True):
    """[m, k] x [k, n], and which matmul of a model that is."""

    name: str
    m: int
    k: int
    n: int

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.k * self.n


class PeakRequest(Value, frozen=True):
    """What to measure: every shape in every precision, each for so long, in turns."""

    shapes: list[MatmulShape]
    dtypes: list[str]
    seconds: float  # of each shape and precision, all turns together
    turns: int


class MeasuredRate(Value, frozen=True):
    """One shape in one precision: TFLOP/s of one device, of each turn."""

    shape: MatmulShape
    dtype: str
    tflops: list[float]


class PeakReport(Value, frozen=True):
    """What a backend's program measured."""

    device_kind: str
    platform: str
    versions: dict[str, str]
    rates: list[MeasuredRate]
    refused: dict[str, str]  # precision -> why it could not be measured here
    notes: list[str] = []
