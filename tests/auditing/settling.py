"""Whether `settled` means settled: runs that drift, and how far their median lies from where they end up."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.measuring.window import choose_window
from benchmarks.values import Step, Window
from tests.auditing.noise import Process, autoregressive, spiked, two_scales
from tests.auditing.table import Array, Line, Lines, Random, Size, at_most, share

PART = "settling"
Drift = Callable[[Array], Array]  # seconds since the start -> step time, as a share of the settled one
NOISE = autoregressive(0.5, 0.002)
MATTERS = 0.005  # a bias of the median beyond it


class Judged(NamedTuple):
    """One run."""

    window: Window
    bias: float  # of the counted steps' median from the settled step time


def lines(size: Size, random: Random) -> Lines:
    for tau in (10, 20, 40, 75):
        yield _ramp(size, random, tau)
    yield from _steady(size, random)
    for what, drift, steps, seconds in DRIFTS:
        yield _drifting(size, random, what, drift, steps, seconds)


# --- drifts ---------------------------------------------------------------------------------------


def linear(by: float, over: float) -> Drift:
    """Slower and slower for so many seconds, then steady."""
    return lambda at: 1 - by * np.clip(1 - at / over, 0, 1)


def exponential(by: float, tau: float) -> Drift:
    return lambda at: 1 - by * np.exp(-at / tau)


def throttled(by: float, from_seconds: float) -> Drift:
    """Thermal throttling that begins late, and stays."""
    return lambda at: 1 - by * (at < from_seconds)


DRIFTS: tuple[tuple[str, Drift, int, float], ...] = (
    ("8% slower over 225 s, linear, 50 steps of 4.5 s", linear(0.08, 225), 50, 4.5),
    ("2% slower over 225 s, linear, 50 steps of 4.5 s", linear(0.02, 225), 50, 4.5),
    ("1% slower over 300 s, linear, 50 steps of 4.5 s", linear(0.01, 300), 50, 4.5),
    ("4% slower over 600 s, linear, 500 steps of 1 s", linear(0.04, 600), 500, 1.0),
    ("3.6% slower, time constant 150 s, 50 steps of 4.5 s", exponential(0.036, 150), 50, 4.5),
    ("2% slower in the last third, 50 steps of 4.5 s", throttled(0.02, 150), 50, 4.5),
    ("8% slower over 30 s, linear, 50 steps of 0.5 s", linear(0.08, 30), 50, 0.5),
)


def drawn(noise: Array, seconds: float, drift: Drift) -> list[list[Step]]:
    """Stamped steps; the first one compiles."""
    found = []
    for row in noise:
        at, made = 0.0, [Step(step=1, seconds=10 * seconds, loss=1.0, tokens=1, elapsed_seconds=0.0)]
        for number, one in enumerate(row, start=2):
            took = seconds * float(one) * float(drift(np.float64(at)))
            at += took
            made.append(Step(step=number, seconds=took, loss=1.0, tokens=1, elapsed_seconds=at))
        found.append(made)
    return found


def judged(
    random: Random, runs: int, steps: int, seconds: float, drift: Drift, noise: Process | None = None
) -> list[Judged]:
    end = seconds * float(drift(np.float64(1e9)))
    found = []
    for run in drawn((noise or NOISE)(random, runs, steps), seconds, drift):
        window, marked = choose_window(run, "steady")
        counted = [step.seconds or 0.0 for step in marked if step.excluded_because is None]
        found.append(Judged(window, float(np.median(counted)) / end - 1))
    return found


# --- lines ------------------------------------------------------------------------------------------


def _ramp(size: Size, random: Random, tau: float) -> Line:
    """A run from a cold start is settled once its median is."""
    found = judged(random, size.runs(1000, 40), 50, 4.5, exponential(0.036, tau))
    hidden = share([one.window.settled and abs(one.bias) > MATTERS for one in found])
    what = f"ramp of 3.6%, time constant {tau:g} s, 50 steps of 4.5 s: off by over 0.5% and called settled"
    return at_most(PART, what, hidden, 0.02, also=_also(found))


def _steady(size: Size, random: Random) -> Lines:
    """Nothing drifts: the noise of a usual run, and the noises that look most like a drift."""
    for steps, seconds in ((50, 4.5), (200, 1.0), (500, 0.1), (50, 20.0), (300, 4.5), (1000, 1.0)):
        yield _standing(size, random, "", steps, seconds, NOISE)
    for name, noise in (("two scales", two_scales), ("spikes", spiked), ("AR(1) 0.9, 0.3%", autoregressive(0.9))):
        yield _standing(size, random, f", {name}", 50, 20.0, noise)


def _standing(size: Size, random: Random, name: str, steps: int, seconds: float, noise: Process) -> Line:
    runs = size.runs(1000, 40) if steps < 100 else size.runs(300, 20)
    found = judged(random, runs, steps, seconds, linear(0.0, 1.0), noise)
    moving = share([one.window.settling == "still moving" for one in found])
    what = f"no drift, {steps} steps of {seconds:g} s{name}: called still moving"
    return at_most(PART, what, moving, 0.05, also=_also(found))


def _drifting(size: Size, random: Random, what: str, drift: Drift, steps: int, seconds: float) -> Line:
    found = judged(random, size.runs(1000, 40), steps, seconds, drift)
    settled = share([one.window.settled for one in found])
    if abs(float(np.mean([one.bias for one in found]))) < MATTERS:
        return Line(PART, f"{what}: called settled", "", f"{settled.text()} ({_also(found)})")
    return at_most(PART, f"{what}: called settled", settled, 0.02, also=_also(found))


def _also(found: Sequence[Judged]) -> str:
    """Bias, states, and how often the bound that is printed for the median's error holds."""
    states = Counter(one.window.settling for one in found)
    said = ", ".join(f"{state} {100 * count / len(found):.0f}%" for state, count in states.most_common())
    bounds = [(abs(one.bias) * 100, one.window.median_off_percent) for one in found]
    held = [bias <= bound for bias, bound in bounds if bound is not None]
    kept = f"; the bound it prints holds in {share(held).text(0)} of {len(held)}" if held else ""
    return f"bias {100 * float(np.mean([one.bias for one in found])):+.2f}%; {said}{kept}"
