"""Which nights are held against which."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.gate.nights import BETWEEN, DURING, NOT_RE_RUN, OLDER, OLDER_LEVEL, PastNight, divide
from benchmarks.gate.rule import G3
from benchmarks.gate.values import Verdict

TONIGHT = PastNight(value=4.0)
VALUES = {"r": 4.2, "i": 4.2, "b": 3.8, "f": 3.8}  # the others are at the old level, 4.0
LETTERS: dict[str, Verdict | None] = {
    "n": "no change", "i": "inconclusive", "r": "regression", "b": "improvement", "x": "invalid", "-": None,
    "o": "inconclusive", "f": "inconclusive",
}  # fmt: skip


def series(
    letters: str, accepted: Sequence[int] = (), slowed: Sequence[int] = (), suspect: Sequence[int] = ()
) -> list[PastNight]:
    """Earlier nights by their verdicts, and tonight. i, o, f: inconclusive, and slow, as of old, fast."""
    earlier = [
        PastNight(
            value=VALUES.get(letter, 4.0),
            verdict=LETTERS[letter],
            accepted=n in accepted,
            left_out="slowed on purpose" if n in slowed else "",
            suspect=n in suspect,
        )
        for n, letter in enumerate(letters)
    ]
    return [*earlier, TONIGHT]


def span(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


@pytest.mark.parametrize(
    ("earlier", "baseline", "recent"),
    [
        (0, [], [0]),
        (9, span(0, 8), [9]),
        (10, span(0, 9), [10]),
        (11, span(0, 9), [11]),
        (12, span(0, 9), [10, 11, 12]),
        (13, span(0, 10), [11, 12, 13]),
        (22, span(0, 19), [20, 21, 22]),
        (23, span(1, 20), [21, 22, 23]),
        (100, span(78, 97), [98, 99, 100]),
    ],
)
@pytest.mark.parametrize("letter", ["n", "-"])
def test_baseline_and_recent_nights_by_the_length_of_the_history(
    earlier: int, baseline: list[int], recent: list[int], letter: str
) -> None:
    found = divide(series(letter * earlier))
    assert found.baseline == baseline
    assert found.recent == recent
    assert found.since == [earlier]


def test_every_night_that_is_not_used_has_a_reason() -> None:
    assert divide(series("n" * 11)).left_out == {10: BETWEEN}
    assert divide(series("n" * 23)).left_out == {0: OLDER}
    found = divide(series("n" * 30, slowed=[4, 28]))
    assert found.left_out[4] == "slowed on purpose"
    assert found.left_out[28] == "slowed on purpose"


N = "n" * 20
LONG_GONE = N + "r" + "n" * 20 + "rir"
Given = dict[str, list[int]]
COURSES: dict[str, tuple[str, Given, dict[str, object]]] = {
    "undecided nights are looked at together and stay out of the baseline": (
        "n" * 25 + "i" * 5, {}, {"since": span(25, 30), "baseline": span(5, 24), "recent": [28, 29, 30]}),
    "a decision begins the undecided nights anew": (N + "iiini", {}, {"since": [24, 25]}),
    "so does a regression": (N + "iirii", {}, {"since": [23, 24, 25]}),
    "so does a night that was never judged": (N + "ii-ii", {}, {"since": [23, 24, 25]}),
    "no more undecided nights than the rule looks at": (
        "i" * 40, {}, {"since": span(31, 40), "baseline": span(11, 30)}),
    "a slowed night counts nowhere": ("i" * 25, {"slowed": [5, 23, 24]}, {"recent": [21, 22, 25]}),
    "an invalid night counts nowhere": (N + "x", {}, {"left_out": {20: "its run was invalid"}}),
    "a regression that goes on is looked at every night": (
        N + "rrrr", {}, {"recent": [22, 23, 24], "baseline": span(0, 17), "since": [24]}),
    "no change closes an alarm, and its nights stay out": (
        N + "rirr" + "n" * 10, {}, {"alarm": None, "baseline": [*span(8, 19), *span(24, 31)]}),
    "four calm nights close none": (N + "rr" + "o" * 4, {}, {"alarm": 20}),
    "five calm nights at the old level do": (N + "rr" + "o" * 5, {}, {"alarm": None}),
    "calm nights that are called close none": (N + "rr" + "ooro" * 5, {}, {"alarm": 20}),
    "calm nights at the new level close none": (N + "rr" + "i" * 30, {}, {"alarm": 20}),
    "an alarm after one that was closed has a beginning of its own": (LONG_GONE, {}, {"alarm": 41}),
    "an improvement beyond a regression is an alarm of its own on the old baseline": (
        "n" * 30 + "rrr" + "bb", {}, {"alarm": 33, "baseline": span(8, 27)}),
    "an improvement that lasts becomes the level": ("n" * 30 + "rrr" + "b" * 10, {}, {"baseline": span(33, 42)}),
    "not before its tenth night": (N + "b" * 9, {}, {"baseline": span(0, 17)}),
    "with its tenth": (N + "b" * 10, {}, {"baseline": span(20, 29)}),
    "and stays it": (N + "b" * 10 + "n" * 5, {}, {"baseline": span(20, 32)}),
    "one that is seldom seen lasts too": (N + "b" + "f" * 9, {}, {"baseline": span(20, 29)}),
    "one that turned out slower is no level": (N + "b" + "i" * 20, {}, {"baseline": span(0, 17)}),
    "a regression never is by itself": (N + "r" * 12, {}, {"baseline": span(0, 17)}),
    "a suspicion that nobody looked into is no decision": (
        N + "oo", {"suspect": [20]}, {"since": [20, 21, 22], "alarm": None}),
    "an accepted level begins with the first night that was judged to have it": (
        N + "irirr" + "i" * 6, {"accepted": [24]},
        {"baseline": span(21, 30), "left_out": dict.fromkeys(range(21), OLDER_LEVEL)}),
}  # fmt: skip


@pytest.mark.parametrize(("letters", "given", "expected"), COURSES.values(), ids=COURSES)
def test_courses_of_nights(letters: str, given: Given, expected: dict[str, object]) -> None:
    found = divide(series(letters, **given))
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("letters", "given", "first"),
    [
        (N + "bbb" + "n" * 10, {}, 0),  # an improvement of a few nights is no level
        (N + "b" + "o" * 9, {}, 0),  # nor one that is gone
        (LONG_GONE + "i" * 12, {"accepted": [43]}, 41),
        # Accepting does not reach back: one bad night, twenty that were not decided, then a regression.
        (N + "r" + "o" * 20 + "rrr" + "i" * 9, {"accepted": [43]}, 41),
    ],
)
def test_which_night_a_level_begins_with(letters: str, given: Given, first: int) -> None:
    baseline = divide(series(letters, **given)).baseline
    assert (baseline[0] < 20) if first == 0 else (baseline[0] == first)


@pytest.mark.parametrize(
    ("letters", "given", "night", "why"),
    [
        (N + "rrrr" + "n" * 10, {}, 21, "judged regression, and not accepted"),
        (N + "o" + "n" * 10, {"suspect": [20]}, 20, NOT_RE_RUN),
    ],
)
def test_a_night_that_is_no_baseline_has_a_reason(letters: str, given: Given, night: int, why: str) -> None:
    found = divide(series(letters, **given))
    assert night not in found.baseline
    assert found.left_out[night] == why


@pytest.mark.parametrize("slow", ["r" * 60, "r" + "i" * 59, ("r" + "iii") * 15, "ri" * 30])
def test_the_baseline_stands_still_while_an_alarm_is_open(slow: str) -> None:
    """However seldom the slow level is seen: else it would fill with it, and the regression turn green by itself."""
    for nights in range(1, 61):
        found = divide(series("n" * 30 + slow[:nights]))
        assert found.baseline == span(8, 27), nights
        assert found.alarm == 30
        assert found.recent[-1] == 30 + nights
    assert "judged regression, and not accepted" in found.left_out.values()
    if "i" in slow:
        assert DURING in found.left_out.values()


@settings(deadline=None)
@given(
    st.text(alphabet="niirbxof-", max_size=60),
    st.sets(st.integers(0, 59), max_size=3),
    st.sets(st.integers(0, 59), max_size=5),
    st.sets(st.integers(0, 59), max_size=5),
)
def test_tonight_is_never_its_own_baseline_and_no_night_is_forgotten(
    letters: str, accepted: set[int], slowed: set[int], suspect: set[int]
) -> None:
    nights = series(letters, sorted(accepted), sorted(slowed), sorted(suspect))
    found, tonight = divide(nights), len(nights) - 1
    assert found.recent[-1] == found.since[-1] == tonight
    assert not {*found.baseline} & {*found.recent, *found.since}
    assert {*found.baseline, *found.recent, *found.since, *found.left_out} == {*range(len(nights))}
    assert not {*found.left_out} & {*found.baseline, *found.recent, *found.since}
    assert len(found.baseline) <= G3.baseline_nights
    assert len(found.since) <= G3.since_nights
    assert all(part == sorted(set(part)) for part in found[:3])
    assert not any(nights[n].left_out for part in found[:3] for n in part)
