"""The share of the noise that re-runs share, estimated from re-runs of suspect nights of a known world."""

import math

import numpy as np
import pytest

from benchmarks.gate.level import level, logarithms
from benchmarks.gate.noise import FALSE_ALARMS, FEWEST_NIGHTS, Reruns, false_alarm_share, reruns_of, shared_noise
from benchmarks.gate.report_text import false_alarms
from benchmarks.gate.rule import G3, decide
from benchmarks.gate.simulation import World, draw, generator
from benchmarks.gate.values import SharedNoise
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


def test_false_alarms_grow_with_the_share_and_a_control_removes_them() -> None:
    rates = [false_alarm_share(share / 20, controlled=False) for share in range(21)]
    assert rates == sorted(rates)
    assert false_alarm_share(0.5, controlled=False) == FALSE_ALARMS[0.5]
    assert false_alarm_share(1.0, controlled=True) <= 0.003


def test_the_sentence_states_the_rate_at_the_upper_end_of_the_measured_share() -> None:
    noise = SharedNoise(share=0.3, low=0.1, high=0.5, nights=40)
    text = false_alarms(20, noise, controlled=False)
    assert "re-runs share 30% of the night-to-night variance with the first run (90% interval 10% to 50%" in text
    assert "at most 0.3% a cell and night" in text
    assert "one false regression in 17 nights" in text
    assert "a control removes them" in text
    assert "at most 0.1%" in false_alarms(20, noise, controlled=True)
    assert "is not known before 10 nights have had re-runs" in false_alarms(1, None, controlled=False)
    assert "nothing was judged" in false_alarms(0, None, controlled=False)
