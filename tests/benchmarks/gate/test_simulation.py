"""The gate's error rates, asserted with fixed seeds: 100 histories a case, 3% of the runs outliers.

The bounds are those that the rule was chosen by, or stricter where it does better. A share is beyond its bound where
a rule that just keeps the bound would look as bad in so many histories more rarely than once in a thousand times;
rare events are counted over all noises together. The negative controls show that the simulation can tell a bad rule
from a good one. The tables of the documentation are of 500 histories; a cell of each is computed anew.
"""

from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.gate.change_points import change_points
from benchmarks.gate.rule import G3, Rule
from benchmarks.gate.self_test import (
    EFFECTS,
    FRESH,
    NOISES,
    RUNS,
    SEED,
    SLOW_NODES,
    USUAL,
    Bound,
    Count,
    Row,
    SelfTest,
    bounds,
    check_bounds,
    course_of,
    row_of,
    self_test,
)
from benchmarks.gate.simulation import Case, World, draw, gated, generator
from benchmarks.gate.simulation_table import settings_line, table_text
from tests.benchmarks.gate import controls
from tests.benchmarks.gate.controls import STEPS, StepNoise, draw_steps, medians

pytestmark = pytest.mark.slow(seconds=1)  # simulations

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "gate.md"
HISTORIES = 100
SMALL = 5  # histories of a whole self test, whose figures nobody looks at


@cache
def row(noise: float, effect: float) -> Row:
    return row_of(Case(World(noise), effect), G3, SEED, HISTORIES)


@cache
def small() -> SelfTest:
    return self_test(runs=SMALL)


def keeps(*found: Count, least: float | None = None, most: float | None = None) -> bool:
    """All of them together are within a bound, as far as so many can tell."""
    together = Count(count=sum(one.count for one in found), of=sum(one.of for one in found))
    return not Bound("", together, least, most).broken


# --- false alarms ---------------------------------------------------------------------------------


def test_false_regressions_are_rare() -> None:
    for kind in ("found", "better"):
        of_noises = [getattr(row(noise, 0.0), kind)[3] for noise in NOISES]
        assert all(keeps(one, most=0.015) for one in of_noises)
        assert sum(one.count for one in of_noises) / sum(one.of for one in of_noises) <= 0.015


def test_false_alarms_a_cell_and_night_are_below_a_tenth_of_a_percent() -> None:
    alarms = [row(noise, 0.0).alarms for noise in NOISES]
    assert sum(one.count for one in alarms) / sum(one.of for one in alarms) <= 0.001


@pytest.mark.parametrize("history", [10, 11, 12, 13])
def test_a_short_history_cries_wolf_no_more_often(history: int) -> None:
    """The eleventh night is judged: against ten, the gap smaller."""
    found = row_of(Case(USUAL, history=history, nights=3), G3, SEED, HISTORIES)
    assert keeps(found.found[3], most=0.015)
    assert found.alarms.of >= 3 * HISTORIES - 4


def test_a_short_history_sees_less_but_not_little() -> None:
    found = row_of(Case(USUAL, 0.03, history=10, nights=3), G3, SEED, HISTORIES)
    assert 0.75 <= found.found[1].share <= row(0.005, 0.03).found[1].share


def test_a_figure_of_which_either_way_is_worse_cries_wolf_no_more_often() -> None:
    found = row_of(Case(USUAL, direction="same"), G3, SEED, HISTORIES)
    assert keeps(found.found[3], most=0.015)
    assert found.better[3].count == 0


# --- power ----------------------------------------------------------------------------------------


def test_what_the_noise_lets_be_seen_is_seen() -> None:
    assert keeps(row(0.002, 0.01).found[1], least=0.94)
    assert keeps(row(0.005, 0.02).found[1], least=0.78)
    assert keeps(row(0.005, 0.02).found[3], least=0.94)
    assert keeps(row(0.005, 0.03).found[1], least=0.96)
    assert keeps(row(0.01, 0.05).found[1], least=0.90)


def test_what_the_noise_hides_is_not_found_by_luck() -> None:
    assert row(0.005, 0.005).found[1].share < 0.05
    assert row(0.02, 0.02).found[1].share < 0.05


def test_an_improvement_is_seen_as_often_as_a_regression() -> None:
    """Nearly: slow outliers among the re-runs speak against one."""
    cases = [(0.002, 0.01), (0.005, 0.02), (0.005, 0.03)]
    mirrored = [row_of(Case(World(noise), -effect), G3, SEED, HISTORIES) for noise, effect in cases]
    differences = [one.better[1].share - row(*case).found[1].share for one, case in zip(mirrored, cases, strict=True)]
    assert differences == pytest.approx([0.0] * len(cases), abs=0.15)
    assert sum(differences) / len(cases) == pytest.approx(0.0, abs=0.06)
    assert all(one.found[10].count == 0 for one in mirrored)


def test_where_more_is_better_less_is_a_regression() -> None:
    found = row_of(Case(USUAL, -0.03, direction="higher", nights=1), G3, SEED, HISTORIES)
    assert found.found[1].share >= 0.9
    assert found.better[1].count == 0


# --- no change ------------------------------------------------------------------------------------


def test_no_change_is_not_claimed_where_the_noise_does_not_allow_it() -> None:
    assert row(0.01, 0.0).inconclusive[3].share >= 0.95
    assert row(0.02, 0.0).no_change[3].count == 0


def test_no_change_is_said_where_the_noise_allows_it() -> None:
    assert row(0.002, 0.0).no_change[1].share >= 0.95
    assert row(0.005, 0.0).no_change[3].share >= 0.15


def test_no_change_is_not_said_of_a_change() -> None:
    assert keeps(row(0.005, 0.02).no_change[1], most=0.005)
    for noise in NOISES:
        assert row(noise, 0.01).no_change[1].share <= 0.09  # as large as the margin itself: nominally 5%


def test_what_a_lasting_change_at_the_margin_is_called_once_in_ten_nights_is_as_documented() -> None:
    assert 0.2 < row(0.005, 0.01).ever_same[10].share < 0.4
    assert row(0.005, 0.012).ever_same[10].share < 0.2
    assert row(0.005, 0.02).ever_same[10].share <= 0.01


# --- two kinds of nodes --------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.2, 0.3, 0.4])
@pytest.mark.parametrize("noise", [0.001, 0.002, 0.005])
def test_a_machine_with_two_kinds_of_nodes_cries_wolf_rarely(noise: float, share: float) -> None:
    two_kinds = World(noise, outliers=share, outlier_from=0.02, outlier_to=0.0201)
    alarms = row_of(Case(two_kinds), G3, SEED, HISTORIES).alarms
    assert alarms.share <= 0.005


# --- negative controls ----------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.002, 0.005, 0.01])
def test_the_five_percent_rule_of_one_run_does_not_see_three_percent(noise: float) -> None:
    assert controls.five_percent_rule(G3, World(noise), 0.03, SEED, HISTORIES) / HISTORIES < 0.10


def test_without_re_runs_the_screen_cries_wolf() -> None:
    assert controls.without_confirmation(G3, USUAL, 0.0, SEED, HISTORIES) / HISTORIES > 0.05


def test_repeats_of_one_night_are_not_nights() -> None:
    assert controls.repeats_as_independent(G3, USUAL, 0.0, SEED, HISTORIES) / HISTORIES > 0.02


def test_steps_of_one_run_are_not_nights_and_the_rule_on_their_medians_is_right() -> None:
    assert controls.steps_as_independent(G3, USUAL, 0.0, SEED, HISTORIES) / HISTORIES > 0.05
    assert controls.gate_on_steps(G3, USUAL, 0.0, SEED, HISTORIES) / HISTORIES <= 0.005
    assert controls.gate_on_steps(G3, USUAL, 0.03, SEED, HISTORIES) / HISTORIES >= 0.96


def test_the_repeats_are_nights_where_they_share_nothing() -> None:
    """So it is what they share that makes them cry wolf, not the test."""
    independent = World(0.005, of_night=0.0, of_nodes=0.0, outliers=0.0, drift=0.0)
    assert controls.repeats_as_independent(G3, independent, 0.0, SEED, HISTORIES) / HISTORIES <= 0.015


# --- what is weak, as documented ------------------------------------------------------------------


def test_re_runs_on_the_same_nodes_raise_false_alarms() -> None:
    same = row_of(Case(USUAL._replace(fresh_nodes=False)), G3, SEED, RUNS).alarms
    assert 0.001 < same.share < 0.006  # at most 0.001 on fresh ones


def test_a_slow_night_that_all_re_runs_share_is_not_covered() -> None:
    slow = row_of(Case(USUAL._replace(slow_nights=0.05)), G3, SEED, HISTORIES).alarms
    assert 0.01 < slow.share < 0.05


def test_a_steady_creep_is_found_late_and_the_sweep_takes_it_for_steps() -> None:
    """0.3% a week for 8 weeks, at 0.2% noise."""
    case, histories = Case(World(0.002), nights=56), 20
    drawn = draw(case.world, generator("creep"), histories, case.history + case.nights, G3.confirmations)
    creep = 0.003 * np.arange(1, case.nights + 1) / 7
    drawn.runs[:, case.history :] += creep
    drawn.reruns[:, case.history :] += creep[:, None]
    found = [one.verdicts.index("regression") for one in gated(drawn, case) if "regression" in one.verdicts]
    assert len(found) >= histories / 2
    assert np.median(found) > 21
    assert all(len(change_points(np.exp(runs).tolist())) >= 2 for runs in drawn.runs[:5])


# --- the synthetic nights themselves --------------------------------------------------------------


def test_nights_have_the_noise_that_is_asked_for_and_re_runs_share_what_they_should() -> None:
    plain = World(0.01, outliers=0.0, drift=0.0)
    fresh = draw(plain, generator("plain"), 4000, 5, 1)
    assert fresh.runs.std() == pytest.approx(0.01, rel=0.02)
    assert correlation(fresh.runs, fresh.reruns) == pytest.approx(plain.of_night, abs=0.03)
    same = draw(plain._replace(fresh_nodes=False), generator("plain"), 4000, 5, 1)
    assert correlation(same.runs, same.reruns) == pytest.approx(plain.of_night + plain.of_nodes, abs=0.03)


def correlation(runs: np.ndarray, reruns: np.ndarray) -> float:
    return float(np.corrcoef(runs.ravel(), reruns[:, :, 0].ravel())[0, 1])


def test_outliers_drift_and_slow_nights_are_as_asked_for() -> None:
    odd = draw(World(1e-9, drift=0.0), generator("odd"), 2000, 10, 0).runs
    assert (odd > 0.0198).mean() == pytest.approx(0.03, abs=0.005)
    assert odd.max() <= np.log(1.1) + 1e-6
    drifting = draw(World(1e-9, outliers=0.0, drift=0.002), generator("drift"), 200, 120, 0).runs
    assert drifting.max(axis=1) == pytest.approx(np.full(200, 0.002), rel=0.01)
    slow = draw(World(1e-9, outliers=0.0, drift=0.0, slow_nights=0.1), generator("slow"), 500, 20, 2)
    assert (slow.runs > 0.01).mean() == pytest.approx(0.1, abs=0.02)
    assert np.array_equal(slow.runs > 0.01, slow.reruns[:, :, 0] > 0.01)


def test_steps_are_as_real_ones() -> None:
    noise = StepNoise(spikes=0.0, settling=0.0)
    logs = np.log(draw_steps(np.zeros(3000), noise, generator("steps")))
    assert logs.shape == (3000, STEPS)

    def lag(steps: int) -> float:
        return float(np.corrcoef(logs[:, :-steps].ravel(), logs[:, steps:].ravel())[0, 1])

    assert 0.3 < lag(1) < 0.6
    assert 0.05 < lag(20) < 0.3
    spiked = np.log(draw_steps(np.zeros(3000), StepNoise(settling=0.0), generator("steps")))
    assert (spiked > 0.05).mean() == pytest.approx(0.017, abs=0.003)
    settling = np.log(draw_steps(np.zeros(3000), StepNoise(spikes=0.0), generator("steps")))
    assert settling[:, 0].mean() == pytest.approx(-0.01, abs=0.001)
    assert settling[:, -1].mean() == pytest.approx(0.0, abs=0.001)


def test_the_median_of_the_steps_finds_the_level_of_the_run() -> None:
    levels = np.array([0.0, 0.5, 1.0])
    assert medians(draw_steps(levels, StepNoise(), generator("level"))) == pytest.approx(levels, abs=0.005)


# --- the self test --------------------------------------------------------------------------------


BOUNDED = [(noise, 0.0) for noise in NOISES] + [(0.002, 0.01), (0.005, 0.02), (0.005, 0.03)]


@cache
def of_fresh_rows() -> SelfTest:
    """The whole self test as far as the bounds look at it, of the rows that the tests above have."""
    courses = [course_of(noise, effect, G3, SEED, HISTORIES // 2) for noise, effect in ((0.005, 0.02), (0.01, 0.03))]
    return msgspec.structs.replace(small(), runs=HISTORIES, rows=[row(*one) for one in BOUNDED], courses=courses)


def test_this_rule_keeps_its_bounds() -> None:
    assert check_bounds(of_fresh_rows()) == []
    held = [bound for bound in bounds(of_fresh_rows()) if bound.found.of == HISTORIES and bound.holds]
    assert len(held) >= len(NOISES) + 4


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        (Rule(screen_p=0.5, confirm_p=0.3), "false regressions"),
        (Rule(confirm_p=1e-7), "is found"),
        (Rule(relevant=0.03), "is found"),
        (Rule(same_within=0.1), "nothing is claimed"),
    ],
)
def test_a_worse_rule_breaks_them(rule: Rule, broken: str) -> None:
    rows = [row_of(Case(World(noise), effect, nights=3), rule, SEED, 30) for noise, effect in BOUNDED]
    lines = check_bounds(msgspec.structs.replace(small(), rows=rows))
    assert any(broken in line for line in lines), lines
    assert all("not at " in line for line in lines)


def test_a_bound_bears_chance_and_no_more() -> None:
    assert not Bound("it", Count(count=2, of=100), most=0.015).broken
    assert Bound("it", Count(count=9, of=100), most=0.015).broken
    assert not Bound("it", Count(count=85, of=100), least=0.88).broken
    assert Bound("it", Count(count=70, of=100), least=0.88).broken
    assert not Bound("it", Count(count=100, of=100), least=0.88).broken
    assert not Bound("it", Count(count=0, of=100), most=0.015).broken


def test_what_is_beyond_its_bound_by_chance_is_said_and_not_called_held() -> None:
    rows = [
        msgspec.structs.replace(one, found={**one.found, 3: Count(count=2, of=100)})
        if (one.noise, one.effect) == (0.01, 0.0)
        else one
        for one in of_fresh_rows().rows
    ]
    text = table_text(msgspec.structs.replace(small(), rows=[*rows, *small().rows]))
    assert "All " not in text
    assert "Beyond their bound, by no more than chance would take them" in text
    assert "- false regressions within 3 nights at 1% noise: 2.0% of 100, not at most 1.5%" in text


def test_it_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    found = self_test(runs=2, progress=lambda done, of: told.append((done, of)))
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1] == len(told) - 1
    assert len(found.rows) == len(NOISES) * len(EFFECTS)


def test_its_tables_have_all_of_it() -> None:
    text = table_text(small())
    assert settings_line(G3, SEED, SMALL) in text
    for noise in NOISES:
        assert text.count(f"| {100 * noise:g}% | ") >= 2
    for line in small().weak:
        assert f"| {line.what} | " in text
    assert "bounds hold" in text
    assert FRESH in text


def test_a_broken_bound_is_in_the_text() -> None:
    blind = [
        msgspec.structs.replace(line, found=Count(count=20, of=20)) if SLOW_NODES in line.what else line
        for line in small().weak
    ]
    text = table_text(msgspec.structs.replace(small(), weak=blind))
    assert "BROKEN BOUNDS" in text
    assert "100.0% of 20, not at most 0.5%" in text


# --- the documentation ----------------------------------------------------------------------------


def test_the_documented_tables_are_those_of_this_rule() -> None:
    assert settings_line(G3, SEED, RUNS) in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize(("noise", "effect"), [(0.002, 0.01), (0.005, 0.02)])
def test_a_documented_cell_is_what_the_simulation_gives(noise: float, effect: float) -> None:
    found = row_of(Case(World(noise), effect), G3, SEED, RUNS).found
    heading = f"| {100 * noise:g}% | "
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith(heading)]
    place = EFFECTS.index(effect)
    assert [" / ".join(count.text() for count in found.values())] in [
        line.removesuffix(" |").split(" | ")[place : place + 1] for line in rows
    ]
