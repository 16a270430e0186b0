"""Clipping, and the quantile of Student's t. Pure."""

from collections.abc import Sequence
from functools import lru_cache


def clip(values: Sequence[float], middle: float, reach: float) -> list[float]:
    return [min(max(value, middle - reach), middle + reach) for value in values]


@lru_cache(maxsize=1024)
def quantile(probability: float, freedom: float) -> float:
    """Of Student's t."""
    from scipy.special import stdtrit  # --help and a dry run need no quantile

    return float(stdtrit(freedom, probability))
