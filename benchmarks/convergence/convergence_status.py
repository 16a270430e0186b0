"""Whether a loss is on its way to the target: converging, stuck or diverging, with the likely reasons. Pure.

One judgement for a run that goes on and for its result. It rests on the evaluations alone; where reference runs give
a band, it says whether they lie in it. The doctor judges logs of other programs, of which neither target nor schedule
need be known, and more slowly, because it must not be wrong (benchmarks/doctor/convergence.py).
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from benchmarks.values import BandPoint, Benchmark

Word = Literal["reached", "too early", "converging", "stuck", "diverging"]
Points = Sequence[tuple[int, float | None]]  # sequences trained, evaluation loss

FEWEST = 3  # evaluations, before anything is said of their course
LOOKED_BACK = 4  # evaluations within which a run that learns must improve
LEAST_GAIN = 0.002  # of the loss: less than that within LOOKED_BACK evaluations is noise
GUESSING = 1.2  # times the loss of guessing: weights as they begin are a little worse than that, no more
WORSE = 0.05  # of the lowest loss: so far above it, twice in a row, no noise goes
LONGEST_POWER = 40  # of e, in sequences: nobody trains so long
FAR = 3.0  # times the whole run: so late is never
FEW_EVALUATIONS = 5  # in a whole run: the target may be passed between two of them


class Course(NamedTuple):
    """What the judgement needs to know of a run; None: not known, as in most foreign logs."""

    target: float
    last_sequences: int | None  # after which it ends
    evaluate_every: int | None  # sequences
    learning_rate: float | None
    schedule_ends: int | None  # sequences after which the rate is at its lowest
    band: Sequence[BandPoint] = ()
    guessing: float | None = None  # the loss of a model that takes every token for as likely


class Status(NamedTuple):
    word: Word
    why: str
    reasons: tuple[str, ...] = ()  # what seed after seed turned out to be the cause, the likeliest first
    band: str = ""  # where the last evaluation lies in the reference band

    def text(self) -> str:
        words = [f"{self.word}: {self.why}", self.band, *self.reasons[:2]]
        return "; ".join(word for word in words if word)


def course_of(benchmark: Benchmark) -> Course | None:
    """None: the run has no target."""
    towards = benchmark.convergence
    if towards is None:
        return None
    batch = benchmark.global_batch_size
    return Course(
        target=towards.target_loss,
        last_sequences=benchmark.steps * batch,
        evaluate_every=towards.evaluate_every * batch,
        learning_rate=towards.schedule.learning_rate,
        schedule_ends=towards.schedule.steps * batch,
        band=towards.reference.band if towards.reference else [],
        guessing=math.log(benchmark.model.vocabulary_size),
    )


def status_of(course: Course, points: Points) -> Status:
    """Where a run is after these evaluations."""
    band = _in_band(course, points)
    if not points:
        return Status("too early", "no evaluation yet")
    losses = [loss if loss is not None else math.inf for _, loss in points]
    if losses[-1] <= course.target:
        return Status("reached", f"{losses[-1]:.4f} is the target of {course.target:g} or better", band=band)
    diverging = _diverging(course, losses)
    if diverging:
        return Status("diverging", diverging, _of_diverging(course), band)
    if len(losses) < FEWEST:
        return Status("too early", f"{len(losses)} of {FEWEST} evaluations that a judgement needs", band=band)
    before = losses[:-LOOKED_BACK]
    if before and min(losses[-LOOKED_BACK:]) > min(before) * (1 - LEAST_GAIN):
        why = f"no better than {min(before):.4f} in the last {LOOKED_BACK} evaluations"
        return Status("stuck", why, _of_stuck(course, points), band)
    return _converging(course, points, losses, band)


def _diverging(course: Course, losses: Sequence[float]) -> str:
    """Why nobody needs to wait for more; nothing where the loss is not far off, or was so for the first time."""
    if not math.isfinite(losses[-1]):
        return "the loss is no finite number"
    if _worse_than_guessing(course, losses[-1]):
        return f"{losses[-1]:.4f} is worse than guessing, {course.guessing:.4f}"
    lowest = min(losses)
    often = len(losses) >= FEWEST and min(losses[-2:]) > lowest * (1 + WORSE)
    return f"{losses[-1]:.4f} after {lowest:.4f}, and not for the first time" if often else ""


def _worse_than_guessing(course: Course, loss: float) -> bool:
    return course.guessing is not None and loss > GUESSING * course.guessing


def _converging(course: Course, points: Points, losses: Sequence[float], band: str) -> Status:
    wanted, last = expected_sequences(course, points), course.last_sequences
    if wanted is None:
        return Status("converging", f"{losses[-1]:.4f}, target {course.target:g}", band=band)
    if last is not None and wanted > FAR * last:
        far = f"{losses[-1]:.4f} falls so slowly that {course.target:g} lies far beyond the end"
        return Status("stuck", far, _of_stuck(course, points), band)
    reasons: tuple[str, ...] = ()
    if last is not None and wanted > last:
        short = f"it ends after {last:,}: MAX_STEPS (--steps) is likely too small"
        exploded = any(_worse_than_guessing(course, loss) for loss in losses)
        reasons = (_of_diverging(course)[0], short) if exploded else (short, _of_rate(course))
    why = f"{losses[-1]:.4f}, target {course.target:g} expected after about {wanted:,} sequences"
    return Status("converging", why, reasons, band)


def expected_sequences(course: Course, points: Points) -> int | None:
    """When the target is reached if the loss goes on as of late: straight over the logarithm of the sequences."""
    known = [(math.log(at), loss) for at, loss in points[-LOOKED_BACK:] if loss is not None and at > 0]
    if len(known) < FEWEST:
        return None
    mean_x = math.fsum(x for x, _ in known) / len(known)
    mean_y = math.fsum(y for _, y in known) / len(known)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in known)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in known) / spread if spread else 0.0
    if slope >= 0:
        return None
    power = mean_x + (course.target - mean_y) / slope
    return 100 * round(math.exp(power) / 100) if power < LONGEST_POWER else None


# --- reasons ----------------------------------------------------------------------------------------


def _of_diverging(course: Course) -> tuple[str, ...]:
    rate = f" ({course.learning_rate:g})" if course.learning_rate is not None else ""
    return (
        f"the learning rate{rate} is likely too high: try half of it",
        "or gradients are not clipped, or the warm-up is too short",
    )


def _of_stuck(course: Course, points: Points) -> tuple[str, ...]:
    found = []
    if any(_worse_than_guessing(course, loss) for _, loss in points if loss is not None):
        found.append(_of_diverging(course)[0])
    share = points[-1][0] / course.schedule_ends if course.schedule_ends else 0.0
    if share > 0.7:
        why = f"{share:.0%} of the schedule is over and the rate near its end"
        found.append(f"MAX_STEPS (--steps) is likely too small: {why}")
    found.append(_of_rate(course))
    every, last = course.evaluate_every, course.last_sequences
    if every is not None and last is not None and last // every < FEW_EVALUATIONS:
        rare = f"rare, every {every:,} of {last:,} sequences: one may be missed"
        found.append(f"evaluations (VAL_CHECK_INTERVAL) are {rare}")
    return tuple(found)


def _of_rate(course: Course) -> str:
    if course.learning_rate is None:
        return "the learning rate may be too low or too high: the reference points name one for each batch"
    return f"the learning rate ({course.learning_rate:g}) may be too low for so many steps, or too high to settle"


def _in_band(course: Course, points: Points) -> str:
    known = [(at, loss) for at, loss in points if loss is not None]
    at, loss = known[-1] if known else (0, 0.0)
    point = next((one for one in course.band if one.sequences == at), None)
    if not known or point is None:
        return ""
    place = "within" if point.low <= loss <= point.high else "above" if loss > point.high else "below"
    return f"{place} the reference band {point.low:.3f} to {point.high:.3f}"
