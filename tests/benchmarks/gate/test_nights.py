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


def test_undecided_nights_are_looked_at_together_and_stay_out_of_the_baseline() -> None:
    found = divide(series("n" * 25 + "i" * 5))
    assert found.since == span(25, 30)
    assert found.baseline == span(5, 24)
    assert found.recent == [28, 29, 30]


def test_a_decision_begins_the_undecided_nights_anew() -> None:
    assert divide(series("n" * 20 + "iiini")).since == [24, 25]
    assert divide(series("n" * 20 + "iirii")).since == [23, 24, 25]
    assert divide(series("n" * 20 + "ii-ii")).since == [23, 24, 25]


def test_no_more_undecided_nights_than_the_rule_looks_at() -> None:
    found = divide(series("i" * 40))
    assert found.since == span(31, 40)
    assert found.baseline == span(11, 30)


def test_a_slowed_night_counts_nowhere() -> None:
    found = divide(series("i" * 25, slowed=[5, 23, 24]))
    assert not {5, 23, 24} & {*found.baseline, *found.recent, *found.since}
    assert found.recent == [21, 22, 25]


def test_an_invalid_night_counts_nowhere() -> None:
    found = divide(series("n" * 20 + "x"))
    assert 20 not in {*found.baseline, *found.recent, *found.since}
    assert "invalid" in found.left_out[20]


def test_a_regression_is_no_baseline_until_it_is_accepted() -> None:
    found = divide(series("n" * 20 + "rrrr" + "n" * 10))
    assert not {20, 21, 22, 23} & {*found.baseline}
    assert found.left_out[21] == "judged regression, and not accepted"
    assert len(found.baseline) == 20


def test_a_regression_that_goes_on_is_looked_at_every_night() -> None:
    found = divide(series("n" * 20 + "rrrr"))
    assert found.recent == [22, 23, 24]
    assert found.baseline == span(0, 17)
    assert found.since == [24]


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


def test_no_change_closes_an_alarm_and_its_nights_stay_out() -> None:
    found = divide(series("n" * 20 + "rirr" + "n" * 10))
    assert found.alarm is None
    assert found.baseline == [*span(8, 19), *span(24, 31)]


def test_calm_nights_at_the_old_level_close_an_alarm_where_no_change_cannot_be_said() -> None:
    assert divide(series("n" * 20 + "rr" + "o" * 4)).alarm == 20
    closed = divide(series("n" * 20 + "rr" + "o" * 20))
    assert closed.alarm is None
    assert not {20, 21} & {*closed.baseline}
    assert {22, 23} <= {*closed.baseline}
    assert divide(series("n" * 20 + "rr" + "ooro" * 5)).alarm == 20
    assert divide(series("n" * 20 + "rr" + "i" * 30)).alarm == 20


def test_an_alarm_after_one_that_was_closed_has_a_beginning_of_its_own() -> None:
    letters = "n" * 20 + "r" + "n" * 20 + "rir"
    assert divide(series(letters)).alarm == 41
    assert divide(series(letters + "i" * 12, accepted=[43])).baseline[0] == 41


def test_accepting_does_not_reach_back_to_a_regression_long_gone() -> None:
    """One bad night, twenty quiet ones of which none was decided, then a true regression."""
    found = divide(series("n" * 20 + "r" + "o" * 20 + "rrr" + "i" * 9, accepted=[43]))
    assert found.baseline[0] == 41
    assert not {*found.baseline} & {*range(41)}


def test_an_improvement_beyond_a_regression_is_an_alarm_of_its_own_on_the_old_baseline() -> None:
    found = divide(series("n" * 30 + "rrr" + "bb"))
    assert (found.alarm, found.baseline) == (33, span(8, 27))
    assert divide(series("n" * 30 + "rrr" + "b" * 10)).baseline == span(33, 42)


def test_an_improvement_that_is_seldom_seen_lasts_too_and_one_that_is_gone_does_not() -> None:
    assert divide(series("n" * 20 + "b" + "f" * 9)).baseline == span(20, 29)
    assert divide(series("n" * 20 + "b" + "o" * 9)).baseline[0] == 0


def test_a_suspicion_that_nobody_looked_into_is_no_baseline_and_no_decision() -> None:
    found = divide(series("n" * 20 + "o" + "n" * 10, suspect=[20]))
    assert 20 not in found.baseline
    assert found.left_out[20] == NOT_RE_RUN
    undecided = divide(series("n" * 20 + "oo", suspect=[20]))
    assert undecided.since == [20, 21, 22]
    assert undecided.alarm is None


def test_an_accepted_level_begins_with_the_first_night_that_was_judged_to_have_it() -> None:
    found = divide(series("n" * 20 + "irirr" + "i" * 6, accepted=[24]))
    assert found.baseline[0] == 21
    assert found.baseline == span(21, 30)
    assert all(found.left_out[n] == OLDER_LEVEL for n in range(21))


def test_an_improvement_that_lasts_becomes_the_level_by_itself() -> None:
    before = divide(series("n" * 20 + "b" * 9))
    assert before.baseline == span(0, 17)
    after = divide(series("n" * 20 + "b" * 10))
    assert after.baseline == span(20, 29)
    much_later = divide(series("n" * 20 + "b" * 10 + "n" * 5))
    assert much_later.baseline == span(20, 32)


def test_an_improvement_of_a_few_nights_does_not() -> None:
    assert divide(series("n" * 20 + "bbb" + "n" * 10)).baseline[0] < 20
    assert divide(series("n" * 20 + "b" + "o" * 9)).baseline[0] < 20
    assert divide(series("n" * 20 + "b" + "i" * 20)).baseline == span(0, 17)  # slower than before: no such level
    assert divide(series("n" * 20 + "r" * 12)).baseline == span(0, 17)


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
