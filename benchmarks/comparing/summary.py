"""What a comparison says in one line: how far apart the sides are, and how many figures differ. Pure."""

import math
from collections.abc import Sequence

from benchmarks.comparing.figures import FigureKind
from benchmarks.comparing.together import CHANCE
from benchmarks.comparing.values import Difference
from benchmarks.rendering.columns import percent_text, plural

SHOWN = ("better", "worse", "changed")
MANY_TIMES = 1.5  # from here on a factor is easier to read than percent


def slower(kinds: Sequence[FigureKind], differences: Sequence[Difference]) -> tuple[float, Difference] | None:
    """How much slower B is, as a logarithm, by the first figure of speed that can be compared."""
    for kind, one in zip(kinds, differences, strict=True):
        if kind.window and one.percent is not None:
            return math.log1p(one.percent / 100) * (1 if kind.direction == "lower" else -1), one
    return None


def summary(kinds: Sequence[FigureKind], differences: Sequence[Difference], runs: int) -> str:
    """Empty where nothing is known to differ, and nothing is left open."""
    speed = slower(kinds, differences)
    found = []
    if speed and speed[1].verdict in SHOWN:
        found.append(_speed_text(speed[0]) + ("; one run each" if runs == 2 and speed[1].chance is None else ""))
    elif speed and speed[1].verdict == "no verdict":
        found.append(f"{_speed_text(speed[0])}, without a verdict")
    families: dict[str, Difference] = {}
    for kind, one in zip(kinds, differences, strict=True):
        if one.chance is not None:
            families.setdefault(kind.family, one)
    if families:
        differ = [name for name, one in families.items() if one.verdict in SHOWN]
        names = (
            f"{len(differ)} differ{'s' if len(differ) == 1 else ''}: {', '.join(differ)}"
            if differ
            else "none differs"
        )
        found.append(f"{plural(len(families), 'figure')} compared; with all together at {1 - CHANCE:.0%}, {names}")
    return ". ".join(found)


def _speed_text(slower_by: float) -> str:
    ratio = math.exp(slower_by)
    if ratio >= MANY_TIMES:
        return f"B took {ratio:.3g} times as long as A"
    if ratio <= 1 / MANY_TIMES:
        return f"B took {ratio:.0%} of the time of A"
    return f"B is {percent_text(abs(100 * (ratio - 1)))} {'slower' if ratio > 1 else 'faster'} than A"
