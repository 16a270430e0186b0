"""What one way gains over another: pairs, the interval and how often it is right, the verdict, what is left out."""

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.comparing.intervals import between_pairs
from benchmarks.measuring import clipped_mean as clipping
from benchmarks.measuring.clipped_mean import clipped_mean
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.sweeps import gain
from benchmarks.sweeps.gain import Gain
from benchmarks.sweeps.scaling import CellRuns
from tests.benchmarks.sweeps.test_scaling import result, scale

Array = npt.NDArray[np.float64]
DRAWS = 4000
NOISE = 0.003


def run(name: str, seconds: float | None, **changes: Any) -> FinishedRun:
    return msgspec.structs.replace(result(scale(1), seconds), run_id=name, **changes)


def off(*seconds: float | None, **changes: Any) -> CellRuns:
    """Its run of repeat N is the Nth; None: there is none."""
    return arm_of("off", seconds, changes)


def auto(*seconds: float | None, applied: bool | None = True, **changes: Any) -> CellRuns:
    return arm_of("auto", seconds, {"pgle_applied": applied, "pgle_reason": "every trace was empty", **changes})


def arm_of(way: str, seconds: Sequence[float | None], changes: dict[str, Any]) -> CellRuns:
    found = {n: run(f"{way}-{n}", one, **changes) for n, one in enumerate(seconds, 1) if one is not None}
    return CellRuns("the cell", scale(1, pgle=way), 3, found)


def gained(base: CellRuns, arm: CellRuns, wanted: int = 3) -> Gain:
    return gain.gain("the cell", base._replace(wanted=wanted), arm)


# --- figures ------------------------------------------------------------------------------------


def test_the_gain_is_that_within_pairs_whatever_the_machine_did_between_them() -> None:
    machine = (1.0, 1.3, 0.7)
    way = [seconds / factor for seconds, factor in zip(machine, (1.019, 1.02, 1.021), strict=True)]
    found = gained(off(*machine), auto(*way))
    assert found.speedup_percent is not None
    half = 4.3027 * 0.1 / math.sqrt(3)
    assert msgspec.structs.astuple(found.speedup_percent) == pytest.approx((2.0, 2.0 - half, 2.0 + half), abs=0.01)
    assert found.verdict == "improvement"


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        ((0.98, 0.981, 0.979), "improvement"),
        ((1.02, 1.021, 1.019), "regression"),
        ((0.98, 1.02, 1.0), "inconclusive"),
        ((1.0, 1.0, 1.0 + 1e-16), "inconclusive"),  # the last digit of a float is no improvement
    ],
)
def test_a_verdict_follows_the_interval(seconds: tuple[float, ...], verdict: str) -> None:
    assert gained(off(1.0, 1.0, 1.0), auto(*seconds)).verdict == verdict


def test_inconclusive_says_what_would_show() -> None:
    found = gained(off(*[1.0] * 6), auto(0.98, 1.02, 1.0, 0.99, 1.01, 1.0), 6)
    assert found.verdict == "inconclusive"
    assert found.smallest_detectable_percent is not None
    assert 1.9 < found.smallest_detectable_percent < 2.2
    assert f"6 pairs show an effect of {found.smallest_detectable_percent:.2g}% or more" in found.why


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_pairs_have_no_interval_and_no_verdict(count: int) -> None:
    found = gained(off(*[1.0] * count), auto(*[0.5] * count), 6)
    assert found.verdict == "no verdict"
    assert "a verdict needs 3 or more" in found.why
    assert found.smallest_detectable_percent is None
    assert (found.speedup_percent is None) == (count == 0)
    if found.speedup_percent:
        assert (found.speedup_percent.value, found.speedup_percent.low) == (pytest.approx(100), None)


@pytest.mark.parametrize(("applied", "why"), [(False, "every trace was empty"), (None, "does not say that it was")])
def test_one_run_without_the_profile_is_enough_for_no_verdict(applied: bool | None, why: str) -> None:
    arm = auto(0.5, 0.5, 0.501)
    without = msgspec.structs.replace(arm.counted[2], pgle_applied=applied)
    found = gained(off(1.0, 1.0, 1.0), arm._replace(counted={**arm.counted, 2: without}))
    assert (found.verdict, found.speedup_percent) == ("no verdict", None)
    assert why in found.why
    assert found.pairs[0].speedup_percent == pytest.approx(100)  # as measured


# --- which pairs count --------------------------------------------------------------------------


def test_a_pair_that_lacks_a_run_is_left_out_and_named() -> None:
    base = off(1.0, None, 1.0, 1.0)._replace(others=[(2, "off-2 failed: no device")])
    found = gained(base, auto(0.5, 0.5, None, 0.5), 4)
    assert [pair.repeat for pair in found.pairs] == [1, 4]
    assert found.left_out == ["repeat 2: off: off-2 failed: no device", "repeat 3: auto: not started"]


def test_a_run_that_has_no_speed_makes_no_pair() -> None:
    found = gained(off(1.0, 1.0, 1.0), auto(0.5, 0.5, 0.5, seconds_per_step=None))
    assert found.pairs == []
    assert found.left_out[0] == "repeat 1: auto: auto-1 has no speed: it is emulated"


def test_runs_that_have_not_settled_are_counted() -> None:
    (note,) = gained(off(1.0, 1.0, 1.0), auto(0.9, 0.9, 0.9, settled=False)).notes
    assert note.startswith("too short to tell whether it had settled: 3 of 6 runs")
    moving = auto(0.9, 0.9, 0.9, settled=False, settling="still moving", median_off_percent=1.23)
    (note,) = gained(off(1.0, 1.0, 1.0), moving).notes
    assert note.startswith("still moving: 3 of 6 runs: their medians may be off by up to 1.2%")


def test_an_outlier_among_six_pairs_counts_less_and_is_named() -> None:
    way = (0.990, 0.991, 0.989, 0.990, 0.992, 1.08)
    found = gained(off(*[1.0] * 6), auto(*way), 6)
    assert found.verdict == "improvement"
    assert found.notes[0].startswith("repeat 6 lies far from the others (-7.41%) and counts as")
    five = gained(off(*[1.0] * 5), auto(*way[1:]), 5)
    assert (five.verdict, five.notes) == ("inconclusive", [])  # of five none can be told to be the odd one
    # Where most pairs are equal nothing measures the noise: clipping would leave an interval without any width.
    equal = gained(off(*[1.0] * 6), auto(*[0.99] * 4, 1.0, 1.01), 6)
    assert (equal.verdict, equal.notes) == ("inconclusive", [])


# --- how often it is right ----------------------------------------------------------------------

Noise = Callable[[np.random.RandomState, tuple[int, int, int]], Array]


def normal(random: np.random.RandomState, shape: tuple[int, int, int]) -> Array:
    return NOISE * random.standard_normal(shape)


def heavy_tails(random: np.random.RandomState, shape: tuple[int, int, int]) -> Array:
    return NOISE / math.sqrt(3) * random.standard_t(3, shape)


def outliers(share: float) -> Noise:
    """So many runs are 2-10% slow."""

    def draw(random: np.random.RandomState, shape: tuple[int, int, int]) -> Array:
        slow = random.random_sample(shape) < share
        return normal(random, shape) + slow * random.uniform(0.02, 0.10, shape)

    return draw


def drift(random: np.random.RandomState, shape: tuple[int, int, int]) -> Array:
    """The machine wanders by 1% from pair to pair."""
    wander = np.cumsum(0.01 * random.standard_normal((shape[0], shape[1], 1)), axis=1)
    return normal(random, shape) + wander


def second_is_slower(random: np.random.RandomState, shape: tuple[int, int, int]) -> Array:
    """By 0.3%; every other pair runs backwards."""
    noise = normal(random, shape)
    for pair in range(shape[1]):
        noise[:, pair, (pair + 1) % 2] += 0.003
    return noise


def two_states(random: np.random.RandomState, shape: tuple[int, int, int]) -> Array:
    """Every run is 2% slow by the toss of a coin."""
    return 0.001 * random.standard_normal(shape) + 0.02 * (random.random_sample(shape) < 0.5)


CASES: dict[str, Noise] = {
    "normal": normal,
    "heavy tails": heavy_tails,
    "3% outlier runs": outliers(0.03),
    "10% outlier runs": outliers(0.10),
    "drift": drift,
    "second is slower": second_is_slower,
}


def differences(case: str, count: int, noise: Noise) -> Array:
    random = np.random.RandomState(zlib.crc32(f"{case} {count}".encode()))
    drawn = noise(random, (DRAWS, count, 2))
    return np.asarray(drawn[:, :, 0] - drawn[:, :, 1])


@pytest.mark.parametrize("count", [3, 4, 5, 6, 8, 12])
@pytest.mark.parametrize("case", CASES)
def test_the_interval_holds_the_truth(case: str, count: int) -> None:
    held = 0
    for logs in differences(case, count, CASES[case]):
        found = clipped_mean(logs.tolist())
        assert found is not None
        held += abs(found.centre) <= found.half_width
    assert held / DRAWS >= 0.94


def test_a_machine_of_two_states_is_held_less_often_as_the_docs_say() -> None:
    held = [clipped_mean(logs.tolist()) for logs in differences("two states", 6, two_states)]
    assert 0.90 <= np.mean([found is not None and abs(found.centre) <= found.half_width for found in held]) < 0.94


def power(case: str, count: int, effect: float) -> float:
    shown = 0
    for logs in differences(case, count, CASES[case]):
        found = clipped_mean((logs + effect).tolist())
        assert found is not None
        shown += found.centre > found.half_width
    return shown / DRAWS


def test_the_interval_is_narrow_enough_to_be_of_use() -> None:
    assert power("normal", 6, 0.01) >= 0.97
    assert power("drift", 6, 0.01) >= 0.97  # it falls on both runs of a pair
    assert power("3% outlier runs", 6, 0.02) >= 0.93
    assert power("10% outlier runs", 12, 0.02) >= 0.93


def test_without_clipping_one_run_in_thirty_hides_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "DEFAULT_PAIRS", 10**9)
    assert power("3% outlier runs", 6, 0.02) < 0.87


def test_clipping_so_few_that_none_can_be_told_would_hold_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "DEFAULT_PAIRS", 3)
    held = [clipped_mean(logs.tolist()) for logs in differences("normal", 3, normal)]
    assert np.mean([found is not None and abs(found.centre) <= found.half_width for found in held]) < 0.92


def test_a_normal_quantile_in_place_of_students_holds_too_little() -> None:
    """The negative control: 1.96 standard errors of three pairs."""
    logs = differences("normal", 3, normal)
    half_width = 1.96 * logs.std(axis=1, ddof=1) / math.sqrt(3)
    assert np.mean(np.abs(logs.mean(axis=1)) <= half_width) < 0.85


@pytest.mark.parametrize("count", [3, 6, 12])
def test_the_smallest_detectable_effect_is_seen_in_four_of_five_cases(count: int) -> None:
    spread = np.resize([1.0, -1.0], count)
    logs = spread - spread.mean()
    logs *= NOISE * math.sqrt(2) / logs.std(ddof=1)
    effect = between_pairs(logs.tolist()).detectable
    assert effect is not None
    assert 0.75 <= power("normal", count, effect) <= 0.86


def test_the_table_has_a_row_for_each_gain() -> None:
    first = gained(off(1.0, 1.0, 1.0), auto(0.98, 0.981, 0.979))
    other = msgspec.structs.replace(gained(off(1.0, 1.0), auto(0.98, 0.9)), cell="--gpus=2", left_out=["repeat 3: x"])
    text = gain.table_text([first, other])
    lines = text.splitlines()
    for word in ("the cell --pgle=auto", "980 ms", "1 s off", "3 of 3", "+2.04%"):
        assert word in lines[2]
    assert lines[2].endswith("improvement")
    assert lines[3].endswith("no verdict")
    assert "left out  --gpus=2 --pgle=auto: repeat 3: x" in text
