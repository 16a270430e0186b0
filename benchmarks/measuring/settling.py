"""Find the steps before the step time settles, and judge whether the step time still changes after that. No I/O.

Step times change gradually (a trend) or at once (a jump), for example when a machine overheats. Stepmark assumes that
a trend continues until LONGEST_DRIFT_SECONDS after the first step. A run is `settled` if its steps rule out a change
that shifts the median by MATTERS_PERCENT. If its steps show such a change, the run is `still moving`. Otherwise it is
`too short` to decide. The rule was chosen by simulation: tests/benchmarks/measuring/test_settling.py.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from benchmarks.request.window_rule import AGREEMENT, BIN_SECONDS, LIMIT_SECONDS
from benchmarks.values import Settling, Window

FEWEST_STEPS = 5  # if fewer steps remain after settling, the run keeps all its steps

MATTERS_PERCENT = 0.5
LONGEST_DRIFT_SECONDS = 600.0
BLOCKS = 8
END_BLOCKS = 2  # a jump with fewer blocks before or after it counts only if the steps show it
STUDENT_T = 2.447  # Student's t, two-sided 95%, for the slope of a line through 8 blocks
# Thresholds in standard errors. They are larger than Student's t, because step times of neighbouring blocks are
# correlated, and because several possible changes are tested.
BOUND = 1.25 * STUDENT_T
SEEN = 2 * STUDENT_T
CERTAIN = 2 * SEEN  # for a change that is too small to matter on its own
SMALLEST_ERROR = 1e-9  # in percent; used as the standard error if step times do not vary


class TimedStep(msgspec.Struct, frozen=True):
    """The duration of one counted step, and the time when it ended."""

    seconds: float
    ended: float  # seconds since the first step started


class Movement(NamedTuple):
    """A change of the step time within `seconds`, in percent, with its standard error. Positive: steps get slower."""

    percent: float
    error: float
    seconds: float

    def bound(self) -> float:
        return abs(self.percent) + BOUND * self.error

    def clearness(self) -> float:
        """Return the size of the change in standard errors."""
        return abs(self.percent) / max(self.error, SMALLEST_ERROR)


class Judgement(NamedTuple):
    settling: Settling
    drift_percent_per_minute: float | None = None  # positive: steps become slower
    median_off_percent: float | None = None
    steps_to_tell: int | None = None  # only for `too short`: the number of steps that may be enough


TOO_SHORT = Judgement("too short")
WORDS: dict[Settling, str] = {
    "settled": "settled",
    "still moving": "still moving",
    "too short": "too short to confirm",
    "not judged": "settling not judged",
}
OF_DRIFT = ("window.drift_percent_per_minute", "window.median_off_percent")
STEPS_TO_TELL = "window.steps_to_tell"


def settled_from(seconds: Sequence[float | None], ends: Sequence[float], first: int) -> int | None:
    """Return the position of the first step after settling; None if the run ends before its step time settles.

    Settling depends on time (power, thermals), not on steps. The constants were measured on 1,194 public
    MLPerf logs. Time counts from the first step that can be in the window, because compiling or collecting a profile
    loads the device in another way. `seconds` is None for a step that cannot be in the window.
    """
    from statistics import median

    started = bin_start = ends[first - 1] if first else 0.0
    earlier: float | None = None
    in_bin: list[float] = []
    for index in range(first, len(seconds)):
        taken = seconds[index]
        if taken is not None:
            in_bin.append(taken)
        if in_bin and ends[index] - bin_start >= BIN_SECONDS:
            later = median(in_bin)
            if earlier is not None and abs(later - earlier) < AGREEMENT * earlier:
                return index + 1
            earlier, bin_start, in_bin = later, ends[index], []
        if ends[index] - started >= LIMIT_SECONDS:
            return index + 1
    return None


def before_settling(seconds: Sequence[float]) -> Judgement:
    """Return the judgement on a run that ended before its step time could settle."""
    from statistics import median

    typical = median(seconds) if seconds else 0.0
    return Judgement(
        "too short", steps_to_tell=_rounded(_fewest(2 * LIMIT_SECONDS, typical)) if typical > 0 else None
    )


def judge(steps: Sequence[TimedStep], counted: Sequence[TimedStep], before: int) -> Judgement:
    """Return whether the median of the counted steps may be wrong, judged by the medians of 8 blocks of steps.

    `steps` are all steps after settling, which are divided into the blocks. `before` is the number of earlier steps.
    """
    from statistics import median

    typical = median(step.seconds for step in counted) if counted else 0.0
    if typical <= 0:
        return TOO_SHORT
    if len(steps) < 2 * BLOCKS or steps[-1].ended - steps[0].ended < LIMIT_SECONDS:
        return Judgement("too short", steps_to_tell=_rounded(before + _fewest(LIMIT_SECONDS, typical)))
    cut = [len(steps) * block // BLOCKS for block in range(BLOCKS + 1)]
    blocks = [steps[start:end] for start, end in pairwise(cut)]
    at = [math.fsum(step.ended for step in block) / len(block) for block in blocks]
    percent = [100 * (median(step.seconds for step in block) / typical - 1) for block in blocks]
    end, middle = steps[-1].ended, (counted[0].ended + counted[-1].ended) / 2
    left = max(LONGEST_DRIFT_SECONDS, end) - middle  # how long a trend may continue after the window's middle
    slope, slope_error = _line(at, percent)
    trend = Movement(slope * left, slope_error * left, left)
    # One possible jump in front of each block except the first: 0 for blocks before the jump, 1 for blocks after it.
    after = [[float(other >= block) for other in range(BLOCKS)] for block in range(1, BLOCKS)]
    jumps = [Movement(*_line(one, percent), at[-1] - at[0]) for one in after]
    inner = jumps[END_BLOCKS - 1 : 1 - END_BLOCKS]
    found = _verdict([trend, *inner], [jumps[0], jumps[-1]])
    if found.settling != "too short":
        return found
    # Estimate the number of steps that would rule out a wrong median if the noise stays the same. The error of a jump
    # is proportional to steps^-0.5, and the error of a trend over a fixed time to steps^-1.5.
    error = max(slope_error * (end - middle), *(jump.error for jump in inner))
    needed = (1 + BOUND) / MATTERS_PERCENT
    longer = max((needed * error) ** 2, (needed * slope_error * LONGEST_DRIFT_SECONDS) ** (2 / 3))
    return found._replace(steps_to_tell=_rounded(before + longer * len(steps)))


def _fewest(seconds: float, typical: float) -> float:
    return max(2 * BLOCKS, seconds / typical + 1)


def _rounded(steps: float) -> int | None:
    """Return the number rounded up to two significant digits; None for infinity."""
    if not math.isfinite(steps):
        return None
    unit: int = 10 ** max(0, math.floor(math.log10(steps)) - 1)
    return math.ceil(steps / unit) * unit


def _verdict(movements: Sequence[Movement], at_ends: Sequence[Movement]) -> Judgement:
    most = max([*movements, *at_ends], key=Movement.clearness)
    is_seen = most.clearness() > (SEEN if most.bound() >= MATTERS_PERCENT else CERTAIN)
    if all(one.bound() < MATTERS_PERCENT for one in ([*movements, most] if is_seen else movements)):
        return Judgement("settled")
    if not is_seen:
        return TOO_SHORT
    plausible = [one for one in (*movements, *at_ends) if one.clearness() >= most.clearness() / 2]
    median_off_percent = max(MATTERS_PERCENT, *(movement.bound() for movement in plausible))
    return Judgement("still moving", 60 * most.percent / most.seconds, median_off_percent)


def _line(at: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return the slope of the least-squares line, and its standard error."""
    count = len(at)
    centre, level = math.fsum(at) / count, math.fsum(values) / count
    width = math.fsum((x - centre) ** 2 for x in at)
    if width <= 0:
        return 0.0, math.inf
    slope = math.fsum((x - centre) * (y - level) for x, y in zip(at, values, strict=True)) / width
    left = math.fsum((y - level - slope * (x - centre)) ** 2 for x, y in zip(at, values, strict=True))
    return slope, math.sqrt(left / (count - 2) / width)


def notes(window: Window) -> list[str]:
    """Return warnings about the median; an empty list for a settled run."""
    if window.settling == "settled" or not window.counted:
        return []
    if window.settling == "still moving":
        drift, off = window.drift_percent_per_minute or 0.0, window.median_off_percent or 0.0
        pace, side = ("slower", "below") if drift > 0 else ("faster", "above")
        return [
            f"still moving: {abs(drift):.2g}% {pace} per minute; "
            f"the median may be up to {off:.2g}% {side} the steady step time, or more if settling takes over 10 min"
        ]
    short = "too short to confirm a steady state"
    if window.steps_to_tell is None:
        return [f"{short}: the window begins before the step time can have settled"]
    return [f"{short} (needs about {window.steps_to_tell:,} steps)"]
