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
    NOISES,
    RATE_NIGHTS,
    RUNS,
    SEED,
    SHOWN,
    SLOW_NODES,
    USUAL,
    WORLDS,
    Bound,
    Count,
    Seen,
    SelfTest,
    broken_bounds,
    course_of,
    found_text,
    rates_table,
    row_of,
    self_test,
    settings_line,
    tables,
    world_of,
)
from benchmarks.gate.simulated_rates import RATES, SEEN
from benchmarks.gate.simulation import Case, World, draw, gated, generator
from tests.benchmarks.gate import controls

pytestmark = pytest.mark.slow(seconds=1)  # simulations

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "measurements" / "2026-11-24-gate.md"
HISTORIES = 100
SMALL = 5  # histories of a whole self test, whose figures nobody looks at


@cache
def row(noise: float, effect: float) -> Seen:
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
    for kind in ("regression", "improvement"):
        of_noises = [row(noise, 0.0).within(3, kind) for noise in NOISES]
        assert all(keeps(one, most=0.015) for one in of_noises)
        assert sum(one.count for one in of_noises) / sum(one.of for one in of_noises) <= 0.015


def test_false_alarms_a_cell_and_night_are_below_a_tenth_of_a_percent() -> None:
    alarms = [row(noise, 0.0).alarms for noise in NOISES]
    assert sum(one.count for one in alarms) / sum(one.of for one in alarms) <= 0.001


@pytest.mark.parametrize("history", [10, 11, 12, 13])
def test_a_short_history_cries_wolf_no_more_often(history: int) -> None:
    """The eleventh night is judged: against ten, the gap smaller."""
    found = row_of(Case(USUAL, history=history, nights=3), G3, SEED, HISTORIES)
    assert keeps(found.within(3, "regression"), most=0.015)
    assert found.alarms.of >= 3 * HISTORIES - 4


def test_a_figure_of_which_either_way_is_worse_cries_wolf_no_more_often() -> None:
    found = row_of(Case(USUAL, direction="same"), G3, SEED, HISTORIES)
    assert keeps(found.within(3, "regression"), most=0.015)
    assert found.within(3, "improvement").count == 0


# --- power ----------------------------------------------------------------------------------------


def test_what_the_noise_lets_be_seen_is_seen() -> None:
    assert keeps(row(0.002, 0.01).within(1, "regression"), least=0.94)
    assert keeps(row(0.005, 0.02).within(1, "regression"), least=0.78)
    assert keeps(row(0.005, 0.02).within(3, "regression"), least=0.94)
    assert keeps(row(0.005, 0.03).within(1, "regression"), least=0.96)
    assert keeps(row(0.01, 0.05).within(1, "regression"), least=0.90)


def test_an_improvement_is_seen_as_often_as_a_regression() -> None:
    """Nearly: slow outliers among the re-runs speak against one."""
    cases = [(0.002, 0.01), (0.005, 0.02), (0.005, 0.03)]
    mirrored = [row_of(Case(World(noise), -effect), G3, SEED, HISTORIES) for noise, effect in cases]
    differences = [
        one.within(1, "improvement").share - row(*case).within(1, "regression").share
        for one, case in zip(mirrored, cases, strict=True)
    ]
    assert differences == pytest.approx([0.0] * len(cases), abs=0.15)
    assert sum(differences) / len(cases) == pytest.approx(0.0, abs=0.06)
    assert all(one.within(10, "regression").count == 0 for one in mirrored)


# --- no change ------------------------------------------------------------------------------------


def test_no_change_is_not_claimed_where_the_noise_does_not_allow_it() -> None:
    assert row(0.01, 0.0).at(3, "inconclusive").share >= 0.95
    assert row(0.02, 0.0).at(3, "no change").count == 0


def test_no_change_is_said_where_the_noise_allows_it() -> None:
    assert row(0.002, 0.0).at(1, "no change").share >= 0.95
    assert row(0.005, 0.0).at(3, "no change").share >= 0.15


def test_no_change_is_not_said_of_a_change() -> None:
    assert keeps(row(0.005, 0.02).at(1, "no change"), most=0.005)
    for noise in NOISES:
        assert keeps(row(noise, 0.01).at(1, "no change"), most=0.07)  # as large as the margin itself: nominally 5%


def test_what_a_lasting_change_at_the_margin_is_called_once_in_ten_nights_is_as_documented() -> None:
    assert 0.2 < row(0.005, 0.01).within(10, "no change").share < 0.4
    assert row(0.005, 0.012).within(10, "no change").share < 0.2
    assert row(0.005, 0.02).within(10, "no change").share <= 0.01


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


def test_steps_of_one_run_are_not_nights_and_the_rule_on_their_medians_is_right() -> None:
    assert controls.steps_as_independent(G3, USUAL, 0.0, SEED, HISTORIES) / HISTORIES > 0.05
    assert controls.gate_on_steps(G3, USUAL, 0.0, SEED, HISTORIES) / HISTORIES <= 0.005
    assert controls.gate_on_steps(G3, USUAL, 0.03, SEED, HISTORIES) / HISTORIES >= 0.96


# --- what is weak, as documented ------------------------------------------------------------------


def test_slow_nights_and_a_drifting_machine_need_a_control() -> None:
    for what in ("3% of nights are slow by 2%", "the machine drifts by +1% a month"):
        without = row_of(Case(WORLDS[what]), G3, SEED, HISTORIES).alarms
        assert 0.01 < without.share < 0.05


# --- with a control ---------------------------------------------------------------------------------


@pytest.mark.parametrize("what", WORLDS)
def test_with_a_control_false_alarms_are_rare_in_every_world(what: str) -> None:
    alarms, power = world_of(WORLDS[what]._replace(control=True), G3, SEED, HISTORIES)
    assert keeps(alarms, most=0.003)
    assert keeps(power, least=0.9)


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


# --- the self test --------------------------------------------------------------------------------


BOUNDED = [(noise, 0.0) for noise in NOISES] + [(0.002, 0.01), (0.005, 0.02), (0.005, 0.03)]


def test_this_rule_keeps_its_bounds() -> None:
    """The whole self test as far as the bounds look at it, of the rows that the tests above have."""
    courses = {at: course_of(*at, G3, SEED, HISTORIES // 2) for at in ((0.005, 0.02), (0.01, 0.03))}
    found = msgspec.structs.replace(small(), rows={at: row(*at) for at in BOUNDED}, courses=courses)
    assert broken_bounds(found) == []


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
    rows = {at: row_of(Case(World(at[0]), at[1], nights=3), rule, SEED, 30) for at in BOUNDED}
    lines = broken_bounds(msgspec.structs.replace(small(), rows=rows))
    assert any(broken in line for line in lines), lines
    assert all("not at " in line for line in lines)


@pytest.mark.parametrize(
    ("count", "least", "most", "broken"),
    [
        (2, None, 0.015, False),
        (9, None, 0.015, True),
        (0, None, 0.015, False),
        (85, 0.88, None, False),
        (70, 0.88, None, True),
        (100, 0.88, None, False),
    ],
)
def test_a_bound_bears_chance_and_no_more(count: int, least: float | None, most: float | None, broken: bool) -> None:
    assert Bound("it", Count(count=count, of=100), least, most).broken is broken


def test_its_tables_have_all_of_it_and_name_broken_bounds() -> None:
    text = tables(small())
    assert settings_line(G3, SEED, SMALL) in text
    assert all(text.count(f"| {100 * noise:g}% | ") >= 2 for noise in NOISES)
    assert all(f"| {what} | " in text for what in small().weak)
    assert "bounds hold" in text
    every = Count(count=20, of=20)
    blind = {what: every if SLOW_NODES in what else count for what, count in small().weak.items()}
    text = tables(msgspec.structs.replace(small(), weak=blind))
    assert "BROKEN BOUNDS" in text
    assert "100.0% of 20, not at most 0.5%" in text


# --- the documentation ----------------------------------------------------------------------------


def test_the_documented_tables_are_those_of_this_rule() -> None:
    assert settings_line(G3, SEED, RUNS) in DOCUMENT.read_text(encoding="utf-8")


def test_the_documented_rates_are_those_that_reports_state() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert [(what, value) for what, rows in RATES.items() for value in rows] == [*SHOWN]
    assert rates_table(RATES) in document


def test_a_stated_rate_is_about_what_the_simulation_gives() -> None:
    world = SHOWN["slow nights", 0.03]._replace(control=True, control_sees=SEEN[1])
    found = row_of(Case(world, nights=RATE_NIGHTS), G3, SEED, HISTORIES).alarms
    assert found.share == pytest.approx(RATES["slow nights"][0.03][1], rel=0.3)


@pytest.mark.parametrize(("noise", "effect"), [(0.002, 0.01), (0.005, 0.02)])
def test_a_documented_cell_is_what_the_simulation_gives(noise: float, effect: float) -> None:
    found = row_of(Case(World(noise), effect), G3, SEED, RUNS)
    heading = f"| {100 * noise:g}% | "
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith(heading)]
    place = EFFECTS.index(effect)
    assert [found_text(found)] in [line.removesuffix(" |").split(" | ")[place : place + 1] for line in rows]
