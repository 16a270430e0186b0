"""How a loss stands on its way to the target, on curves of every kind; the real ones are of runs of both backends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.convergence.convergence_status import Course, status_of
from benchmarks.values import BandPoint

EVERY = 384
COURSE = Course(
    target=3.3, last_sequences=16 * EVERY, evaluate_every=EVERY, learning_rate=0.001, schedule_ends=16 * EVERY
)
# As MaxText and NeMo had them on a laptop, llama31_8b_tiny.
MAXTEXT = [5.3490, 4.4773, 4.0720, 3.8419, 3.6918, 3.5858, 3.4870, 3.4270, 3.3553, 3.3151, 3.2744]
NEMO = [5.3861, 5.0208, 4.4366, 4.0326, 3.8037, 3.6573, 3.5178, 3.4231, 3.2930]


def points(losses: list[float]) -> list[tuple[int, float | None]]:
    return [((at + 1) * EVERY, loss if math.isfinite(loss) else None) for at, loss in enumerate(losses)]


@pytest.mark.parametrize("curve", [MAXTEXT, NEMO])
def test_a_run_that_reached_its_target_was_converging_all_the_way(curve: list[float]) -> None:
    words = [status_of(COURSE, points(curve[:end])).word for end in range(1, len(curve) + 1)]
    assert words == ["too early", "too early", *["converging"] * (len(curve) - 3), "reached"]


@pytest.mark.parametrize(
    ("losses", "word", "reason"),
    [
        ([5.0, 4.0, math.nan], "diverging", "learning rate (0.001) is likely too high"),
        ([5.0, 4.0, 4.6, 5.5], "diverging", "learning rate (0.001) is likely too high"),
        ([5.0, 4.0, 3.9, 3.9, 3.91, 3.9, 3.9], "stuck", "learning rate (0.001) may be too low"),
        ([5.0, *[3.9] * 13], "stuck", "MAX_STEPS (--steps) is likely too small: 88% of the schedule"),
    ],
)
def test_a_run_that_will_not_arrive_is_told_so_with_the_likely_reason(
    losses: list[float], word: str, reason: str
) -> None:
    found = status_of(COURSE, points(losses))
    assert found.word == word
    assert reason in found.text()


# MaxText with a learning rate of 3, as it was: it explodes, and the schedule's end makes it fall again.
EXPLODED = [164.97, 135.95, 139.24, 97.65, 83.38, 48.78, 14.82, 6.03, 5.42, 5.35]


def test_a_run_that_explodes_is_diverging_from_its_first_evaluation_on() -> None:
    course = COURSE._replace(guessing=math.log(512), last_sequences=10 * EVERY, learning_rate=3.0)
    words = [status_of(course, points(EXPLODED[:end])).word for end in range(1, len(EXPLODED) + 1)]
    assert words[:7] == ["diverging"] * 7
    first = status_of(course, points(EXPLODED[:1]))
    assert first.why == "164.9700 is worse than guessing, 6.2383"
    assert "learning rate (3) is likely too high" in status_of(course, points(EXPLODED)).text()
    assert "learning rate (3) is likely too high" in status_of(course, points([*EXPLODED, *[5.3] * 5])).reasons[0]


def test_too_few_steps_are_seen_before_the_run_has_ended() -> None:
    short = COURSE._replace(last_sequences=6 * EVERY)
    found = status_of(short, points(MAXTEXT[:5]))
    assert found.word == "converging"
    assert f"it ends after {6 * EVERY:,}: MAX_STEPS (--steps) is likely too small" in found.text()


def test_a_target_far_beyond_the_end_is_not_converged_to() -> None:
    """As a run with a learning rate of 1 had it."""
    found = status_of(COURSE, points([5.70, 5.60, 5.50, 5.42, 5.36, 5.30, 5.26, 5.24, 5.22, 5.20]))
    assert found.word == "stuck"
    assert "falls so slowly that 3.3 lies far beyond the end" in found.why
    assert "learning rate (0.001)" in found.text()


@pytest.mark.parametrize(("loss", "place"), [(3.9, "within"), (4.2, "above"), (3.1, "below")])
def test_the_last_evaluation_is_placed_in_the_reference_band(loss: float, place: str) -> None:
    course = COURSE._replace(target=3.0, band=[BandPoint(sequences=4 * EVERY, low=3.7, high=4.0)])
    found = status_of(course, points([5.3, 4.6, 4.3, loss]))
    assert found.band == f"{place} the reference band 3.700 to 4.000"
    assert found.band in found.text()


@given(st.lists(st.one_of(st.none(), st.floats(0.01, 1e6)), max_size=40))
def test_any_curve_has_a_standing(losses: list[float | None]) -> None:
    found = status_of(COURSE, [((at + 1) * EVERY, loss) for at, loss in enumerate(losses)])
    assert found.text().startswith(found.word)
    if losses and losses[-1] is not None:
        assert (found.word == "reached") == (losses[-1] <= COURSE.target)
