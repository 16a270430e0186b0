"""All figures of one comparison together: how likely so large a difference is in any of them by chance. Pure.

Of five figures of two equal sides, one differs at 95% in 15-20% of comparisons. Holm's method (1979), with weights,
keeps that at 5%. Step time has most of the weight: with equal weights, 3 runs a side would miss most differences of
1% that they show now.
"""

from collections.abc import Mapping

STEP_TIME = "step time"
SHARE_OF_STEP_TIME = 0.8  # of the 5%; the others have equal parts of the rest
CHANCE = 0.05


def adjusted(chances: Mapping[str, float]) -> dict[str, float]:
    """Each figure's p value with all figures together, from its own."""
    weights = _weights(list(chances))
    ordered = sorted(chances, key=lambda name: chances[name] / weights[name])
    found: dict[str, float] = {}
    left, least = sum(weights.values()), 0.0
    for name in ordered:
        least = max(least, min(1.0, left * chances[name] / weights[name]))
        found[name] = least
        left -= weights[name]
    return found


def _weights(names: list[str]) -> dict[str, float]:
    others = len(names) - 1
    if STEP_TIME not in names or not others:
        return dict.fromkeys(names, 1.0)
    return {name: SHARE_OF_STEP_TIME if name == STEP_TIME else (1 - SHARE_OF_STEP_TIME) / others for name in names}
