"""Published times to train, and which of them stand beside a run. Pure but for the reading of one file."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from benchmarks.configs import read_yaml
from benchmarks.values import Positive, Value

FILE = Path("references") / "mlperf_times.yml"


class PublishedTime(Value, frozen=True):
    """The olympic mean of one submission, or the span of several."""

    benchmark: str
    round: str | None
    hardware: str
    gpus: Positive
    minutes: Annotated[list[float], msgspec.Meta(min_length=1, max_length=2)]

    def text(self) -> str:
        span = " to ".join(f"{minutes:g}" for minutes in self.minutes)
        return f"{span} min on {self.gpus} {self.hardware} ({self.round or 'round not known'})"


class PublishedTimes(Value, frozen=True):
    """configs/references/mlperf_times.yml"""

    date: str
    source: str
    times: list[PublishedTime]


def read_times(root: Path) -> PublishedTimes:
    return read_yaml(root / FILE, PublishedTimes)


def beside(
    times: PublishedTimes, benchmark: str, platform: str | None, hardware: Sequence[str]
) -> list[PublishedTime]:
    """Those of the benchmark on the device that the platform's name names; all of them where it names none."""
    rows = [row for row in times.times if row.benchmark == benchmark]
    named = _device(platform or "", hardware)
    of_device = [row for row in rows if row.hardware == named]
    return of_device or rows


def _device(platform: str, hardware: Sequence[str]) -> str | None:
    """The name of configs/hardware that stands in it as a word: 18xNVIDIA GB200, 1xDGX H100."""
    words = set(re.split(r"[^a-z0-9]+", platform.lower()))
    return max((name for name in hardware if name in words), key=len, default=None)
