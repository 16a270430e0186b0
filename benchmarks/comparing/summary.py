"""What a comparison says first: one sentence on speed, and how many figures differ. Pure."""

import math
from collections.abc import Sequence

from benchmarks.comparing.figures import FigureKind
from benchmarks.comparing.names import Names
from benchmarks.comparing.text import value_text
from benchmarks.comparing.together import CHANCE
from benchmarks.comparing.values import Difference
from benchmarks.rendering.columns import percent_text, plural

SHOWN = ("better", "worse", "changed")
MANY_TIMES = 1.5  # from here on a factor is easier to read than percent
SECONDS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
LEAST_ADJUSTED = 0.005  # of a logarithm: less is rounding


def speed_of(kinds: Sequence[FigureKind], differences: Sequence[Difference]) -> Difference | None:
    """The first figure of speed that can be compared."""
    pairs = zip(kinds, differences, strict=True)
    return next((one for kind, one in pairs if kind.window and one.percent is not None), None)


def slower(speed: Difference | None) -> float | None:
    """How much slower B is, as a logarithm."""
    if speed is None or speed.percent is None:
        return None
    return math.log1p(speed.percent / 100) * (1 if speed.direction == "lower" else -1)


def sentence(speed: Difference | None, names: Names, runs: tuple[int, int], margin_percent: float) -> str:
    """Both sides by their names, the figures, how many runs they are of; no claim without a verdict that makes it.

    Empty where no figure of speed can be compared.
    """
    if speed is None or speed.percent is None:
        return ""
    a, b, work = names.a, f"{names.prefix}{names.b}", names.work
    both = f"{names.prefix}{a}" if a.startswith("on ") else a  # where no "than" or "as" is before it
    interval = ""
    if speed.verdict in SHOWN:
        claim = f"{b} {_compared(speed, speed.percent, a)}{work}"
        interval = _shown_interval(speed)
    elif speed.verdict == "equal within the margin":
        claim = f"{b} and {both} are equal within {margin_percent:g}%{work}"
        interval = _open_interval(speed)
    elif speed.verdict == "no difference shown":
        claim = f"No difference shown between {b} and {both}{work}"
        interval = _open_interval(speed)
    else:
        claim = f"No verdict on {b} against {both}{work}"
    return f"{claim}: {_values(speed)}; {_runs(*runs)}{_adjusted(speed)}{interval}"


def figures_together(kinds: Sequence[FigureKind], differences: Sequence[Difference]) -> str:
    """How many figures differ with all of them together; empty where none has a p value."""
    families: dict[str, Difference] = {}
    for kind, one in zip(kinds, differences, strict=True):
        if one.chance is not None:
            families.setdefault(kind.family, one)
    if not families:
        return ""
    differ = [name for name, one in families.items() if one.verdict in SHOWN]
    names = (
        f"{len(differ)} differ{'s' if len(differ) == 1 else ''}: {', '.join(differ)}" if differ else "none differs"
    )
    return f"{plural(len(families), 'figure')} compared; with all together at {1 - CHANCE:.0%}, {names}"


# --- its parts ------------------------------------------------------------------------------------


def _compared(speed: Difference, percent: float, a: str) -> str:
    size = percent_text(abs(percent))
    if speed.unit == "s":
        if _is_factor(percent):
            return f"takes {_factor(percent)} as long as {a}"
        return f"is {size} {'slower' if percent > 0 else 'faster'} than {a}"
    if speed.unit == "%":
        return f"has {size} {'higher' if percent > 0 else 'lower'} {speed.name} than {a}"
    if _is_factor(percent):
        return f"has {_factor(percent)} as many {speed.name} as {a}"
    return f"has {size} {'more' if percent > 0 else 'fewer'} {speed.name} than {a}"


def _is_factor(percent: float) -> bool:
    return not 1 / MANY_TIMES < 1 + percent / 100 < MANY_TIMES


def _factor(percent: float, digits: str = ".2g") -> str:
    """2.9 times; less than 1: 45%"""
    ratio = 1 + percent / 100
    return f"{ratio:{digits}} times" if ratio > 1 else percent_text(100 * ratio, digits)


def _shown_interval(speed: Difference) -> str:
    """In the words of the claim; of the windows of two single runs, which leave the noise out, none."""
    if speed.chance is None or speed.percent is None or speed.low is None or speed.high is None:
        return ""
    if _is_factor(speed.percent) and speed.unit != "%":
        ends = [_factor(end, ".3g") for end in (speed.low, speed.high)]
    else:
        low, high = sorted((abs(speed.low), abs(speed.high)))
        decimals = max(0, 2 - math.floor(math.log10(high))) if high else 0  # three digits of the larger end
        ends = [f"{end:,.{decimals}f}%" for end in (low, high)]
    return f", 95% interval {ends[0].removesuffix('%').removesuffix(' times')} to {ends[1]}"


def _open_interval(speed: Difference) -> str:
    if speed.low is None or speed.high is None:
        return ""
    return f", 95% interval {' to '.join(percent_text(end, '+.2g') for end in (speed.low, speed.high))}"


def _adjusted(speed: Difference) -> str:
    """The difference is not that of the two figures alone where trends, days or pairs are taken into account."""
    if speed.a is None or speed.b is None or speed.percent is None:
        return ""
    apart = math.log(speed.b.value / speed.a.value) - math.log1p(speed.percent / 100)
    return ", adjusted for when they ran" if abs(apart) > LEAST_ADJUSTED else ""


def _values(speed: Difference) -> str:
    """3.21 against 4.68 s/step: B, then A, in one unit."""
    values = [figure.value for figure in (speed.b, speed.a) if figure is not None]
    if speed.unit == "s":
        unit, scale = next((one for one in SECONDS if max(values) >= one[1]), SECONDS[-1])
        texts, unit = [f"{value / scale:.4g}" for value in values], f"{unit}/step"
    else:
        texts, unit = [value_text(value, speed.unit) for value in values], speed.name
    return f"{' against '.join(texts)} {unit}"


def _runs(a: int, b: int) -> str:
    if a == b:
        return "one run each" if a == 1 else f"{a} runs each"
    return f"{b} and {plural(a, 'run')}"
