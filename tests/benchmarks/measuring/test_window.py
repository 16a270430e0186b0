"""Which steps count: every rule, every reason, and that no step disappears in silence."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.errors import RequestError
from benchmarks.measuring.window import choose_window, missing_steps
from benchmarks.request.window_rule import check_rule, describe_rule
from benchmarks.values import Step, Window

RULES = ["steady", "last", "2-5", "35-44"]


def run_of(seconds: Sequence[float | None], excluded: dict[int, str] | None = None, first: int = 0) -> list[Step]:
    reasons = excluded or {}
    return [
        Step(step=number, seconds=value, loss=None, tokens=None, excluded_because=reasons.get(number))
        for number, value in enumerate(seconds, start=first)
    ]


def with_elapsed(steps: Sequence[Step], elapsed: Sequence[float | None]) -> list[Step]:
    return [
        Step(
            step=step.step,
            seconds=step.seconds,
            loss=None,
            tokens=None,
            elapsed_seconds=end,
            excluded_because=step.excluded_because,
        )
        for step, end in zip(steps, elapsed, strict=True)
    ]


def reasons_of(steps: Sequence[Step], rule: str = "steady", fastest: float | None = None) -> list[str | None]:
    return [step.excluded_because for step in choose_window(steps, rule, fastest)[1]]


def window_of(steps: Sequence[Step], rule: str = "steady", fastest: float | None = None) -> Window:
    return choose_window(steps, rule, fastest)[0]


# --- steady: compile, no time, marks that came along, artefacts of asynchronous dispatch --------

C, A, N = "compile", "artefact", "no_time"
NAN, INF = float("nan"), float("inf")


def test_a_short_run_keeps_all_steps_after_compile_and_says_that_it_is_too_short() -> None:
    window = window_of(run_of([30.0, 1.0, 1.0, 1.0]))
    assert window == Window(
        rule="steady",
        first_step=1,
        last_step=3,
        counted=3,
        settled=False,
        excluded={"compile": 1},
        settling="too short",
        steps_to_tell=160,
    )


@pytest.mark.parametrize(
    ("seconds", "reasons"),
    [
        pytest.param([30.0, 8.0, 1.0, 1.0], [C, None, None, None], id="a slow second step is not explained away"),
        pytest.param([None, 1.0, None], [C, None, N], id="a first step without a time is compile"),
        pytest.param([9.0, 1.0, NAN, INF, -1.0, 1.0, 1.0], [C, None, N, N, N, None, None], id="no number of seconds"),
        # A MaxText log on public record: the seconds that step 2 lost are in step 1.
        pytest.param([1.353, 12.444, 0.002, 11.715], [C, A, A, None], id="the public log"),
        pytest.param([30.0, 4.0, 4.01, 1.0, 7.0, 4.0, 4.0], [C, None, None, A, A, None, None], id="carrier after"),
        pytest.param([30.0, 4.0, 4.01, 1.0, 4.02, 4.0], [C, None, None, A, None, None], id="no carrier"),
        pytest.param(
            [30.0, 4.0, 4.0, 0.002, 0.003, 12.0, 4.0, 4.0, 4.0],
            [C, None, None, A, A, A, None, None, None],
            id="a row of artefacts has its carrier at its end",
        ),
        pytest.param([30.0, 0.002, 8.0, 4.0, 4.0, 4.0], [C, A, A, None, None, None], id="compile hides no carrier"),
    ],
)
def test_what_counts_and_why_the_rest_does_not(seconds: list[float | None], reasons: list[str | None]) -> None:
    for first in (0, 1000):  # in a later attempt, the first step compiles too, for any number
        assert reasons_of(run_of(seconds, first=first)) == reasons


def test_reasons_that_came_along_come_first() -> None:
    steps = run_of([30.0, 1.0, None, 0.001, None, 1.0, 1.0], {0: "pgle", 2: "evaluation", 3: "profiler"})
    assert reasons_of(steps) == ["pgle", None, "evaluation", "profiler", "no_time", None, None]


def test_no_steps_make_an_empty_window_and_those_of_two_attempts_none() -> None:
    for rule in RULES:
        window, marked = choose_window([], rule)
        assert (window.counted, window.first_step, window.settled, marked) == (0, None, False, [])
    other = Step(step=1, seconds=1.0, loss=None, tokens=None, attempt=2)
    with pytest.raises(ValueError, match="one attempt"):
        choose_window([*run_of([1.0]), other], "steady")


@pytest.mark.parametrize(
    ("seconds", "fastest", "counted", "artefacts"),
    [
        pytest.param([30.0, 4.0, 3.0, 4.0, 4.0], None, 4, 0, id="uneven"),
        pytest.param([30.0, 4.0, 3.0, 4.0, 4.0], 3.5, 3, 1, id="a step faster than the hardware"),
        pytest.param([30.0, 4.0, 4.0, 4.0], 4.5, 0, 3, id="every step faster than the hardware"),
        # This run takes 12 s a step; counting what is left would say 24 s.
        pytest.param([40.0, *[24.0, 0.002] * 10, 24.0], None, 0, 21, id="dispatch times are common"),
        # Halved times are not dispatch times: a shared laptop does this.
        pytest.param([9.0, *[1.0, 1.0, 0.4] * 6], None, 12, 6, id="merely uneven"),
    ],
)
def test_where_no_time_can_be_trusted_none_counts(
    seconds: list[float], fastest: float | None, counted: int, artefacts: int
) -> None:
    window = window_of(run_of(seconds), fastest=fastest)
    assert (window.counted, window.excluded.get("artefact", 0)) == (counted, artefacts)


# --- steady: settling -------------------------------------------------------------------------


def test_a_window_starts_when_two_medians_agree() -> None:
    """1 s steps: the bins of 15 steps have medians 1.04, 1.02, 1.001, 1.0: the last two agree."""
    steps = run_of([30.0, *[1.04] * 15, *[1.02] * 15, *[1.001] * 15, *[1.0] * 30])
    window = window_of(steps)
    assert (window.first_step, window.counted, window.excluded) == (61, 15, {"compile": 1, "settling": 60})


def test_medians_that_differ_by_a_quarter_percent_do_not_agree() -> None:
    agreeing = run_of([30.0, *[1.002] * 15, *[1.0] * 60])
    differing = run_of([30.0, *[1.0026] * 15, *[1.0] * 60])
    assert window_of(agreeing).first_step == 31
    assert window_of(differing).first_step == 46


def test_settling_ends_after_75_seconds_at_the_latest() -> None:
    steps = run_of([30.0, *[2.0 - 0.005 * index for index in range(200)]])
    window = window_of(steps)
    assert (window.settled, window.settling) == (False, "still moving")
    assert window.excluded["settling"] == 40  # 39 steps take 74.3 s, 40 take 76.1 s
    assert window.first_step == 41


@pytest.mark.parametrize(
    ("seconds", "marks", "excluded"),
    [
        pytest.param([600.0, *[1.0] * 40], {}, {"settling": 30}, id="of stepping, not of compiling"),
        pytest.param(
            [30.0, *[1.0] * 80], dict.fromkeys(range(1, 21), "pgle"), {"pgle": 20, "settling": 30}, id="recorded"
        ),
        pytest.param([90.0, 20.4, 20.2, 20.0, 20.01, *[20.0] * 6], {}, {"settling": 4}, id="steps longer than a bin"),
        pytest.param([30.0, *[4.0] * 20], {}, {"settling": 8}, id="a bin holds whole steps"),
    ],
)
def test_settling_is_a_matter_of_seconds(
    seconds: list[float], marks: dict[int, str], excluded: dict[str, int]
) -> None:
    assert window_of(run_of(seconds, marks)).excluded == {"compile": 1, **excluded}


@pytest.mark.parametrize(("after", "counted"), [(5, 5), (4, 34), (0, 30)])
def test_a_run_with_too_few_settled_steps_keeps_those_before(after: int, counted: int) -> None:
    window = window_of(run_of([30.0, *[1.0] * (30 + after)]))
    assert (window.settling, window.counted) == ("too short", counted)
    assert window.excluded.get("settling", 0) == (30 if counted == 5 else 0)


def test_the_reported_end_of_a_step_beats_cumulated_seconds() -> None:
    """A pause of 10 s before each step, seen only by the clock: settling takes two steps a bin."""
    steps = run_of([30.0, *[1.0] * 20])
    clocked = with_elapsed(steps, [30.0 + 11 * index for index in range(21)])
    assert window_of(clocked).excluded["settling"] == 4
    assert not window_of(steps).settled


def test_steps_missing_from_a_log_shift_nothing() -> None:
    steps = [step for step in run_of([30.0, *[1.0] * 60]) if step.step not in (50, 51)]
    window = window_of(steps)
    assert (window.first_step, window.last_step, window.counted) == (31, 60, 28)
    assert sum(window.excluded.values()) + window.counted == len(steps)


# --- the recipes' own rules -------------------------------------------------------------------

OUT = "outside_window"


@pytest.mark.parametrize(
    ("rule", "seconds", "excluded", "reasons"),
    [
        ("last", [30.0, 2.0, 1.0, None], {}, [OUT, OUT, None, N]),  # the last step with a time
        ("last", [9.0, 2.0, 1.0], {2: "profiler"}, [OUT, None, "profiler"]),
        ("2-4", [1.0, None, 1.0, None, 1.0, 1.0], {2: "profiler"}, [OUT, OUT, "profiler", N, None, OUT]),
        ("1-3", [30.0, 4.0, 0.002, 8.0, 4.0], {}, [OUT, None, None, None, OUT]),  # as published: artefacts stay
    ],
)
def test_a_recipes_rule_is_applied_as_published(
    rule: str, seconds: list[float | None], excluded: dict[int, str], reasons: list[str | None]
) -> None:
    assert reasons_of(run_of(seconds, excluded), rule) == reasons


def test_a_range_counts_its_steps_by_number_both_ends_included() -> None:
    window = window_of(run_of([1.0] * 50), "35-44")
    assert (window.first_step, window.last_step, window.counted) == (35, 44, 10)
    assert window.excluded == {"outside_window": 40}
    assert window_of(run_of([1.0] * 50, first=1), "35-44").first_step == 35
    assert window_of(run_of([1.0] * 40), "35-44").counted == 5


@pytest.mark.parametrize(
    ("rule", "seconds", "missing"),
    [
        ("35-44", [1.0] * 40, 5), ("35-44", [1.0] * 45, 0), ("35-44", [], 10), ("1-4", [1.0, 1.0, None, 1.0, 1.0], 1),
        ("last", [None], 1), ("last", [1.0], 0), ("steady", [], 0),
    ],
)  # fmt: skip
def test_what_a_rule_asks_for_and_the_run_lacks(rule: str, seconds: list[float | None], missing: int) -> None:
    assert missing_steps(rule, run_of(seconds)) == missing


@pytest.mark.parametrize(("rule", "settled"), [("30-35", False), ("31-35", True), ("last", True), ("190-199", False)])
def test_a_recipe_window_says_whether_the_run_had_settled_before_it(rule: str, settled: bool) -> None:
    """1 s steps settle within 30 of them, so the step numbered 31 is the first after."""
    assert window_of(run_of([30.0, *[1.0] * 120]), rule).settled is settled


# --- rules as words ---------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["median", "", "35", "35-", "-44", "35-44-50", "a-b", " last"])
def test_an_unknown_rule_is_refused_with_the_valid_ones(rule: str) -> None:
    with pytest.raises(RequestError) as refusal:
        check_rule(rule)
    assert f"'{rule}'" in refusal.value.what
    assert refusal.value.where == "--window"
    for valid in ("steady", "last", "35-44"):
        assert valid in str(refusal.value)


def test_a_range_that_runs_backwards_is_refused() -> None:
    with pytest.raises(RequestError, match="44-35"):
        choose_window([], "44-35")


def test_every_rule_has_words() -> None:
    assert "0.25%" in describe_rule("steady")
    assert "75 s" in describe_rule("steady")
    assert describe_rule("last").startswith("the last step")
    assert describe_rule("35-44").startswith("steps 35 to 44")
    with pytest.raises(RequestError):
        describe_rule("median")


def test_steps_that_a_clock_stamped_are_true_however_quick() -> None:
    """Stepmark's own steps: none of them counts as an artefact, so no slow step is excluded with one."""
    steps = with_elapsed(run_of([3.0, 1.0, 1.8, 0.2, 1.0, 1.0]), [3.0, 4.0, 5.8, 6.0, 7.0, 8.0])
    assert reasons_of(steps) == ["compile", *[None] * 5]


# --- what holds for every run -----------------------------------------------------------------

STEP_SECONDS = st.one_of(st.none(), st.just(0.002), st.floats(0.5, 30.0), st.sampled_from([1.0, 4.0, 16.0]))
RUNS = st.builds(
    run_of,
    st.lists(STEP_SECONDS, max_size=60),
    st.dictionaries(st.integers(0, 60), st.sampled_from(["profiler", "pgle", "evaluation"]), max_size=5),
)


@given(RUNS, st.sampled_from(RULES), st.sampled_from([None, 0.9]))
def test_every_step_counts_or_has_a_reason(steps: list[Step], rule: str, fastest: float | None) -> None:
    window, marked = choose_window(steps, rule, fastest)
    assert [(step.step, step.seconds) for step in marked] == [(step.step, step.seconds) for step in steps]
    assert window.counted + sum(window.excluded.values()) == len(steps)
    assert window.excluded == Counter(step.excluded_because for step in marked if step.excluded_because)
    counted = [step for step in marked if step.excluded_because is None]
    assert len(counted) == window.counted
    assert all(step.seconds is not None for step in counted)
    assert (window.first_step, window.last_step) == ((counted[0].step, counted[-1].step) if counted else (None, None))


@given(RUNS, st.sampled_from(RULES), st.sampled_from([None, 0.9]))
def test_reasons_that_came_along_are_kept(steps: list[Step], rule: str, fastest: float | None) -> None:
    for before, after in zip(steps, choose_window(steps, rule, fastest)[1], strict=True):
        if before.excluded_because is not None:
            assert after.excluded_because == before.excluded_because


@given(RUNS)
def test_reasons_of_the_steady_rule_have_their_order(steps: list[Step]) -> None:
    window, marked = choose_window(steps, "steady")
    for position, (before, after) in enumerate(zip(steps, marked, strict=True)):
        if before.excluded_because is not None:
            continue
        assert (after.excluded_because == "compile") == (position == 0)
        assert (after.excluded_because == "no_time") == (position > 0 and before.seconds is None)
    settling = [step.step for step in marked if step.excluded_because == "settling"]
    if settling:
        assert window.first_step is not None
        assert max(settling) < window.first_step
