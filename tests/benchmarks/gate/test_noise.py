"""What nights of a known world show: what re-runs share, how nights follow each other, what the control sees."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.gate.level import level, logarithms
from benchmarks.gate.nights import OLDER
from benchmarks.gate.noise import (
    FEWEST_IN_COURSE,
    FEWEST_NIGHTS,
    FalseAlarms,
    Reruns,
    control_sees,
    course_of,
    false_alarms,
    night_course,
    reruns_of,
    shared_noise,
)
from benchmarks.gate.report_text import false_alarms_text
from benchmarks.gate.rule import G3, decide
from benchmarks.gate.simulated_rates import RATES
from benchmarks.gate.simulation import World, draw, generator
from benchmarks.gate.values import Estimate, NightCourse, NightPoint, SharedNoise, UsedAs
from tests.benchmarks.gate.nights_made import history, judged, report

CELLS, NIGHTS, BASELINE = 10, 30, 20


def suspects(world: World, seed: int) -> list[Reruns]:
    """The re-runs of all suspect nights of some cells."""
    first = BASELINE + G3.gap_nights - 1
    drawn = draw(world, generator(seed, world, "noise"), CELLS, first + NIGHTS, G3.confirmations)
    found: list[Reruns] = []
    for cell, runs in enumerate(np.exp(drawn.runs).tolist()):
        judged = [(runs[n - first : n - 2], runs[n - 2 : n + 1], n) for n in range(first, first + NIGHTS)]
        variances = [level(logarithms(baseline, ""), G3).deviation ** 2 for baseline, _, _ in judged]
        deviation = math.sqrt(sum(variances) / NIGHTS)
        found += [
            Reruns(str(cell), np.exp(drawn.reruns[cell, n]).tolist(), deviation, BASELINE + NIGHTS - 2)
            for baseline, recent, n in judged
            if decide(baseline, recent, "lower", None, (), G3).outcome == "suspect"
        ]
    return found


@pytest.mark.parametrize(
    ("world", "share"),
    [
        (World(0.005), 0.1),
        (World(0.005, of_night=0.5, of_nodes=0.2), 0.5),
        (World(0.005, fresh_nodes=False), 0.5),
        (World(0.002, of_night=0.8, of_nodes=0.1), 0.8),
    ],
)
def test_the_share_is_found_from_suspect_nights_alone(world: World, share: float) -> None:
    """A little too large where little is shared, as outliers make the nights look noisier: false alarms are then
    overstated.
    """
    found = [one for seed in range(6) if (one := shared_noise(suspects(world, seed)))]
    assert len(found) >= 5
    assert share - 0.05 < sum(one.share for one in found) / len(found) < share + 0.15
    assert sum(one.high >= share for one in found) >= len(found) - 1
    assert all(one.low <= one.share <= one.high <= 1 for one in found)


def test_too_few_nights_say_nothing_and_more_narrow_the_interval() -> None:
    found = suspects(World(0.005, of_night=0.5, of_nodes=0.2), 1)
    assert shared_noise(found[: FEWEST_NIGHTS - 1]) is None
    few, many = shared_noise(found[:12]), shared_noise(found)
    assert few is not None
    assert many is not None
    assert many.high - many.low < few.high - few.low


def test_the_nodes_part_is_what_re_runs_on_the_same_nodes_share_more() -> None:
    fresh = suspects(World(0.005, of_night=0.1, of_nodes=0.4, outliers=0.0), 1)
    same = suspects(World(0.005, of_night=0.1, of_nodes=0.4, outliers=0.0, fresh_nodes=False), 2)
    both = [one._replace(fresh_nodes=True) for one in fresh] + [one._replace(fresh_nodes=False) for one in same]
    found = shared_noise(both)
    assert found is not None
    assert found.nodes == pytest.approx(0.4, abs=0.15)
    assert (shared_noise(fresh) or found).nodes is None


def test_records_of_nights_hold_what_it_takes() -> None:
    slow, _ = judged(1.5, history(), [1.5, 1.51, 1.49])
    (found,) = reruns_of([report([slow]), report([slow], slowed_by=0.5)])
    assert list(found.values) == [1.5, 1.51, 1.49]
    assert found.deviation == pytest.approx(0.003, abs=0.001)


# --- the control, and how nights follow each other ------------------------------------------------


def re_run_with_controls(sees: float, seed: int, slow_nights: float = 0.1, by: float = 0.02) -> list[Reruns]:
    """Re-runs of nights of which some were slow, each with its control; logarithms from the usual levels."""
    random = np.random.default_rng(seed)
    nights = by * (random.random(60) < slow_nights)[:, None]
    cell, control = (share * nights + 0.005 * random.standard_normal((60, 3)) for share in (1.0, sees))
    return [
        Reruns("cell", np.exp(cell[n]).tolist(), 0.005, 100, off=list(zip(cell[n], control[n], strict=True)))
        for n in range(60)
    ]


@pytest.mark.parametrize("sees", [0.0, 0.5, 1.0])
def test_slow_nights_show_what_the_control_sees(sees: float) -> None:
    found = [one for seed in range(20) if (one := control_sees(re_run_with_controls(sees, seed)))]
    assert sum(one.low <= sees <= one.high for one in found) >= 16
    assert np.median([one.value for one in found]) == pytest.approx(sees, abs=0.1)
    assert np.median([one.high - one.low for one in found]) < 0.6


def test_a_control_that_met_no_slow_night_or_too_few_re_runs_is_not_known() -> None:
    quiet = control_sees(re_run_with_controls(1.0, 1, slow_nights=0.0))
    assert quiet is not None
    assert (quiet.low, quiet.high) == (0.0, 1.0)
    assert control_sees(re_run_with_controls(1.0, 1)[: FEWEST_NIGHTS - 1]) is None
    assert control_sees([one._replace(off=()) for one in re_run_with_controls(1.0, 1)]) is None


def test_a_change_that_lasts_is_no_night_that_the_control_has_missed() -> None:
    """The same re-runs: of a slow night, and of a slower program, which is as slow the night after."""
    night, _ = judged(1.5, history(), [1.5, 1.51, 1.49])
    one = night.judgements[0]
    point = replace(one.points[-1], control=2.02)
    one = replace(one, points=[point], control_percent=1.0, control_p=0.5, confirmation_controls=[2.0, 2.04, 2.02])
    night = replace(night, judgements=[one])
    calm = replace(night, judgements=[replace(one, verdict="no change", confirmations=[])])
    slow_night, *_ = reruns_of([report([night]), report([calm])])
    assert [other for _, other in slow_night.off] == pytest.approx([0.0, math.log(1.02), math.log(1.01)])
    assert slow_night.off[0][0] == pytest.approx(math.log(1.5), abs=0.002)
    assert all(not found.off for found in reruns_of([report([night]), report([night])]))
    assert not reruns_of([report([night])])[0].off


def nights(memory: float, drift: float, sees: float = 1.0, count: int = 60, seed: int = 0) -> list[list[float]]:
    """Of the cell and its control: half of the variance is the night's part, with a lag-1 autocorrelation."""
    random = np.random.default_rng(seed)
    own = random.standard_normal((2, count))
    night = random.standard_normal(count)
    for n in range(1, count):
        night[n] = memory * night[n - 1] + (1 - memory**2) ** 0.5 * night[n]
    shared = 0.005 * 0.5**0.5 * night + drift * np.arange(count) / 30
    return [np.exp(share * shared + 0.005 * 0.5**0.5 * own[n]).tolist() for n, share in enumerate((1.0, sees))]


@pytest.mark.parametrize(("memory", "drift"), [(0.0, 0.0), (0.8, 0.0), (0.0, 0.01), (0.0, -0.01)])
def test_the_nights_show_their_autocorrelation_and_their_drift(memory: float, drift: float) -> None:
    found = [one for seed in range(20) if (one := course_of(nights(memory, drift, seed=seed)[0]))]
    if not drift:  # else the drift is most of it
        assert sum(one.memory.high >= memory / 2 for one in found) >= 17
        assert np.median([one.memory.value for one in found]) == pytest.approx(memory / 2, abs=0.1)
    assert np.median([one.drift_percent.value for one in found]) == pytest.approx(100 * drift, abs=0.15)
    assert sum(one.drift_percent.low <= 100 * drift <= one.drift_percent.high for one in found) >= 14
    faster = course_of(nights(0.0, drift)[0], higher_is_better=True)
    assert faster is not None
    assert faster.drift_percent.value == pytest.approx(-100 * drift, abs=0.3)
    assert course_of(nights(memory, drift)[0][: FEWEST_IN_COURSE - 1]) is None


def test_nights_that_follow_each_other_say_less_of_a_drift() -> None:
    plain, following = (
        np.median([one.high - one.low for one in (drift_of(nights(memory, 0.0, seed=n)[0]) for n in range(20))])
        for memory in (0.0, 0.8)
    )
    assert following > 1.2 * plain


def drift_of(values: list[float]) -> Estimate:
    found = course_of(values)
    assert found is not None
    return found.drift_percent


def test_the_course_is_of_the_level_that_counts_now_without_tonight() -> None:
    cell, _ = judged(1.5, history())
    values = nights(0.0, 0.01, count=40)[0]
    used: list[tuple[UsedAs, str]] = [("left out", OLDER)] * 15 + [("baseline", "")] * 20 + [("recent", "")] * 4
    points = [
        NightPoint(night=str(n), run_id=str(n), value=value, used_as=as_what, why=why)
        for n, (value, (as_what, why)) in enumerate(zip(values, [*used, ("tonight", "")], strict=True))
    ]
    off = NightPoint(night="x", run_id="x", value=9.0, used_as="left out", why="judged regression, and not accepted")
    gated = replace(cell.judgements[0], points=[off, *points], gates=True)
    found = night_course([replace(cell, judgements=[gated, replace(gated, gates=False)])])
    assert found == course_of(values[:35])
    assert night_course([cell]) is None


@pytest.mark.parametrize("sees", [0.0, 0.5, 1.0])
def test_a_control_beside_each_night_shows_how_much_of_a_drift_it_sees(sees: float) -> None:
    courses = [course_of(*nights(0.0, 0.01, sees, seed=seed)) for seed in range(20)]
    found = [one.control_sees for one in courses if one and one.control_sees]
    assert sum(one.low <= sees <= one.high for one in found) >= 16
    assert np.median([one.value for one in found]) == pytest.approx(sees, abs=0.1)
    assert np.median([one.high - one.low for one in found]) < 0.6
    alone = course_of(nights(0.0, 0.01)[0])
    assert alone is not None
    assert alone.control_sees is None


# --- what follows ---------------------------------------------------------------------------------


def estimate(low: float, high: float) -> Estimate:
    return Estimate(value=(low + high) / 2, low=low, high=high, nights=50)


def shared(high: float) -> SharedNoise:
    return SharedNoise(share=high / 2, low=0.0, high=high, nights=40)


def course(memory: float = 0.0, drift_percent: float = 0.0, sees: Estimate | None = None) -> NightCourse:
    return NightCourse(
        memory=estimate(0.0, memory), drift_percent=estimate(0.0, drift_percent), noise_percent=0.5, control_sees=sees
    )  # fmt: skip


def worst(noise: SharedNoise | None, nights: NightCourse | None, sees: Estimate | None) -> FalseAlarms:
    return false_alarms(noise, nights, sees, worse=True)


def test_false_alarms_are_the_simulated_ones_at_the_worse_end_of_what_the_nights_show() -> None:
    none, half, every = range(3)
    assert worst(shared(0.5), None, None).usual == pytest.approx(RATES["share"][0.5][none])
    assert worst(None, None, None).usual == pytest.approx(RATES["share"][1.0][none])
    assert worst(shared(0.0), course(memory=0.4), None).usual == pytest.approx(RATES["memory"][0.4][none])
    assert worst(shared(0.0), course(drift_percent=1.0), None).usual == pytest.approx(RATES["drift"][2.0][none])
    unseen = worst(shared(0.0), course(drift_percent=1.0), estimate(1.0, 1.0))
    assert unseen.usual == pytest.approx(RATES["drift"][2.0][none])
    seen = worst(shared(0.0), course(drift_percent=1.0, sees=estimate(0.5, 0.9)), estimate(0.5, 0.9))
    assert seen.usual == pytest.approx(RATES["drift"][2.0][half])
    assert seen.slow_nights == pytest.approx(max(RATES["slow nights"][0.03][half], seen.usual))
    assert worst(shared(0.5), None, estimate(0.5, 1.0)).skewed == pytest.approx(RATES["skewed"][0.5][half])
    assert worst(shared(0.5), None, estimate(1.0, 1.0)).slow_nights == pytest.approx(
        RATES["slow nights"][0.03][every]
    )


@pytest.mark.parametrize("sees", [0.0, 0.3, 0.75])
def test_false_alarms_grow_with_the_share_the_autocorrelation_and_the_drift_and_fall_with_the_control(
    sees: float,
) -> None:
    by_share = [worst(shared(n / 20), None, estimate(sees, 1.0)).usual for n in range(21)]
    by_memory = [worst(shared(0.0), course(memory=n / 20), None).usual for n in range(13)]
    by_drift = [worst(shared(0.0), course(drift_percent=n / 10), None).usual for n in range(-5, 25)]
    for rates in (by_share, by_memory, by_drift):
        assert rates == sorted(rates)
        assert rates[-1] > 2 * rates[0]
    less, more = (worst(shared(0.2), None, estimate(low, 1.0)).slow_nights for low in (sees, sees + 0.2))
    assert more < less


def test_the_sentence_states_the_rates_and_what_the_nights_show() -> None:
    text = false_alarms_text(20, shared(0.5), course(0.4, 0.2), controlled=False)
    assert "false alarms: 0.26 to 1.2% a cell and night" in text
    assert "with 20 gated figures one false regression in 5 to 19 nights" in text
    assert "1.2 to 2% if the noise is skewed, 2.6% if 3% of whole nights are 2% slow" in text
    assert "re-runs share 25% of the night-to-night variance with the first run (0% to 50%" in text
    assert "lag-1 autocorrelation of 0.20 (0.00 to 0.40) and drift by +0.10% a month" in text
    assert "control" not in text
    assert "at most" not in text
    controlled = false_alarms_text(20, shared(0.5), None, estimate(0.4, 1.0), controlled=True)
    assert "the control shows 70% of slow nights (40% to 100%, 50 nights with re-runs)" in controlled
    assert "0.95 to 1.8% if 3% of whole nights" in controlled
    calm = false_alarms_text(20, shared(0.5), None, estimate(0.0, 1.0), controlled=True)
    assert "none was slow enough to tell" in calm
    assert ", 2.6% if 3% of whole nights" in calm
    unknown = false_alarms_text(1, controlled=True)
    assert "assumed to share all noise" in unknown
    assert "independent nights without drift are assumed until there are 30" in unknown
    assert "assumed to see no slow night until 10 nights" in unknown
    assert "nothing was judged" in false_alarms_text(0, controlled=False)
