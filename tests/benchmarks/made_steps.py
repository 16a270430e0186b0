"""Noise of step times, for simulations: with a memory, with spikes, with two speeds. The last axis is the steps.

Sizes as in public MLPerf logs: lag-1 autocorrelation 0.11-0.78, 0.05-0.3 at lag 20; spikes of 7-25%.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Random = np.random.RandomState
Shape = tuple[int, ...]


def autoregressive(random: Random, shape: Shape, r: float) -> Array:
    """Each step remembers a share of the one before; the variance is 1."""
    values: Array = random.standard_normal(shape)
    values[..., 1:] *= (1 - r * r) ** 0.5
    for step in range(1, shape[-1]):
        values[..., step] += r * values[..., step - 1]
    return values


def two_scales(random: Random, shape: Shape, fast: float = 0.002, slow: float = 0.001, r: float = 0.98) -> Array:
    """Noise from step to step, and noise that lasts for some 1 / (1 - r) steps."""
    quick = fast * autoregressive(random, shape, 0.3)
    both: Array = quick + slow * autoregressive(random, shape, r)
    return both


def spikes(random: Random, shape: Shape) -> Array:
    """Logarithms: 1.7% of the steps take 7 to 25% longer."""
    spiked = random.random_sample(shape) < 0.017
    heights: Array = np.where(spiked, np.log1p(random.uniform(0.07, 0.25, shape)), 0.0)
    return heights


def two_speeds(random: Random, shape: Shape, dwell_steps: float) -> Array:
    """Return 0 or 1, each for `dwell_steps` steps on average."""
    changes = random.random_sample(shape) < 1 / dwell_steps
    states: Array = (random.randint(2, size=(*shape[:-1], 1)) + changes.cumsum(-1)) % 2
    return states
