"""Which nights the latest one is compared with."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.nightly.rule import BASELINE_NIGHTS
from benchmarks.nightly.series import DURING, OLDER, OLDER_LEVEL, UNCONFIRMED, PastNight, divide
from benchmarks.nightly.values import Suspicion
from benchmarks.verdict import Verdict

LETTERS = {
    "n": (Verdict.SAME, Suspicion.NONE),
    "i": (Verdict.INCONCLUSIVE, Suspicion.NONE),
    "s": (Verdict.INCONCLUSIVE, Suspicion.OPEN),
    "c": (Verdict.INCONCLUSIVE, Suspicion.SHARED),
    "w": (Verdict.WORSE, Suspicion.CONFIRMED),
    "b": (Verdict.BETTER, Suspicion.CONFIRMED),
    "-": (None, Suspicion.NONE),
}


def series(letters: str, accepted: Sequence[int] = (), slowed: Sequence[int] = ()) -> list[PastNight]:
    """Earlier nights by their verdicts, and the latest one."""
    earlier = [
        PastNight(
            value=4.0,
            verdict=LETTERS[letter][0],
            suspicion=LETTERS[letter][1],
            accepted=n in accepted,
            left_out="slowed on purpose" if n in slowed else "",
        )
        for n, letter in enumerate(letters)
    ]
    return [*earlier, PastNight(value=4.0)]


def span(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


@pytest.mark.parametrize(
    ("earlier", "baseline", "recent"),
    [
        (0, [], [0]),
        (9, span(0, 8), [9]),
        (10, span(0, 9), [10]),
        (11, span(0, 9), [10, 11]),
        (12, span(0, 9), [10, 11, 12]),
        (13, span(0, 10), [11, 12, 13]),
        (23, span(1, 20), [21, 22, 23]),
        (100, span(78, 97), [98, 99, 100]),
    ],
)
@pytest.mark.parametrize("letter", ["n", "i", "-"])
def test_baseline_and_recent_nights_by_the_length_of_the_history(
    earlier: int, baseline: list[int], recent: list[int], letter: str
) -> None:
    found = divide(series(letter * earlier))
    assert (found.baseline, found.recent) == (baseline, recent)


N = "n" * 20
COURSES: dict[str, tuple[str, dict[str, list[int]], int | None, list[int]]] = {
    "slowed nights never count": ("i" * 25, {"slowed": [5, 23, 24]}, None, [*span(0, 4), *span(6, 20)]),
    "suspect nights never count": (N + "sc" + "n" * 3, {}, None, [*span(1, 19), 22]),
    "the baseline does not move during an alarm": (N + "wwww", {}, 20, span(0, 17)),
    "nor if it is seldom seen": (N + "wiiwiiwii", {}, 20, span(0, 17)),
    "same closes an alarm, and its nights stay out": (N + "wiww" + "n" * 10, {}, None, [*span(8, 19), *span(24, 31)]),
    "two calm nights close none": (N + "wwii", {}, 20, span(0, 17)),
    "three calm nights close it": (N + "wwiii", {}, None, span(0, 17)),
    "suspect nights are not calm": (N + "wwsssss", {}, 20, span(0, 17)),
    "better after worse is another alarm on the old baseline": ("n" * 30 + "wwwbb", {}, 33, span(8, 27)),
    "nine nights of better are no level": (N + "b" * 9, {}, 20, span(0, 17)),
    "ten are": (N + "b" * 10, {}, None, span(20, 29)),
    "worse never is by itself": (N + "w" * 12, {}, 20, span(0, 17)),
    "an accepted level begins with its alarm": (N + "wiww" + "i" * 6, {"accepted": [23]}, None, span(20, 29)),
    "or with the night itself": (N + "i" * 12, {"accepted": [21]}, None, span(21, 30)),
}


@pytest.mark.parametrize(("letters", "given", "alarm", "baseline"), COURSES.values(), ids=COURSES)
def test_courses_of_nights(letters: str, given: dict[str, list[int]], alarm: int | None, baseline: list[int]) -> None:
    found = divide(series(letters, **given))
    assert found.alarm is None if alarm is None else found.alarm and found.alarm.first == alarm
    assert found.baseline == baseline


@pytest.mark.parametrize(
    ("letters", "given", "night", "why"),
    [
        (N + "wwww" + "n" * 10, {}, 21, DURING),
        (N + "s" + "n" * 10, {}, 20, UNCONFIRMED),
        ("n" * 23, {}, 0, OLDER),
        (N + "w" + "n" * 10, {"accepted": [20]}, 3, OLDER_LEVEL),
        ("n" * 30, {"slowed": [4]}, 4, "slowed on purpose"),
    ],
)
def test_a_night_outside_the_baseline_has_a_reason(
    letters: str, given: dict[str, list[int]], night: int, why: str
) -> None:
    found = divide(series(letters, **given))
    assert night not in found.baseline
    assert found.left_out[night] == why


@given(st.text(alphabet="niscwb-", max_size=60), st.sets(st.integers(0, 59), max_size=3), st.sets(st.integers(0, 59)))
def test_no_night_is_forgotten_or_used_twice(letters: str, accepted: set[int], slowed: set[int]) -> None:
    nights = series(letters, sorted(accepted), sorted(slowed))
    found, latest = divide(nights), len(nights) - 1
    assert found.recent[-1] == latest
    every = [*found.baseline, *found.recent, *found.left_out]
    assert sorted(every) == [*range(len(nights))]
    assert len(found.baseline) <= BASELINE_NIGHTS
    assert not any(nights[n].left_out for n in [*found.baseline, *found.recent])
