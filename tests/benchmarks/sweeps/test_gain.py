"""What one way gains over another: pairs, the interval and how often it is right, the verdict, what is left out."""

import math
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.runs.finished_run import FinishedRun
from benchmarks.sweeps import gain, gain_table, pairs
from benchmarks.sweeps.gain import Arm, Gain, Taken
from benchmarks.sweeps.pairs import paired, pairs_for, smallest_detectable
from tests.benchmarks.sweeps.test_scaling import result, scale

Array = npt.NDArray[np.float64]
DRAWS = 4000
NOISE = 0.003


def run(name: str, seconds: float | None, **changes: Any) -> FinishedRun:
    return msgspec.structs.replace(result(scale(1), seconds), run_id=name, **changes)


def off(*seconds: float | None, **changes: Any) -> Arm:
    """Its run of repeat N is the Nth; None: there is none."""
    taken = {
        repeat: Taken(run(f"off-{repeat}", one, **changes), 2 * repeat)
        for repeat, one in enumerate(seconds, 1)
        if one is not None
    }
    return Arm("off", taken, {})


def auto(*seconds: float | None, applied: bool = True, **changes: Any) -> Arm:
    taken = {
        repeat: Taken(
            run(f"auto-{repeat}", one, pgle_applied=applied, pgle_reason="every trace was empty", **changes),
            2 * repeat + 1,
        )
        for repeat, one in enumerate(seconds, 1)
        if one is not None
    }
    return Arm("auto", taken, {})


def gained(base: Arm, arm: Arm, wanted: int = 3) -> Gain:
    return gain.gain("the cell", base, arm, wanted)


# --- figures ------------------------------------------------------------------------------------


def test_the_gain_is_that_within_pairs_whatever_the_machine_did_between_them() -> None:
    machine = (1.0, 1.3, 0.7)
    found = gained(
        off(*machine), auto(*(m / factor for m, factor in zip(machine, (1.019, 1.02, 1.021), strict=True)))
    )
    assert found.speedup_percent is not None
    assert found.ratio is not None
    assert found.speedup_percent.value == pytest.approx(2.0, abs=0.001)
    assert found.ratio.value == pytest.approx(1 / 1.02, abs=1e-5)
    assert found.speedup_percent.low == pytest.approx(2.0 - 4.3027 * 0.1 / math.sqrt(3), abs=0.01)
    assert found.speedup_percent.high == pytest.approx(2.0 + 4.3027 * 0.1 / math.sqrt(3), abs=0.01)
    assert found.verdict == "improvement"


def test_the_gain_does_not_depend_on_which_run_of_a_pair_came_first() -> None:
    base, arm = off(1.0, 1.1, 1.2), auto(0.9, 1.0, 1.1)
    turned = Arm("auto", {r: Taken(t.result, t.place - 2) for r, t in arm.taken.items()}, {})
    assert gained(base, arm) == gained(base, turned)


# --- the verdict --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        ((0.98, 0.981, 0.979), "improvement"),
        ((1.02, 1.021, 1.019), "regression"),
        ((0.98, 1.02, 1.0), "inconclusive"),
        ((1.0, 1.0, 1.0), "inconclusive"),
    ],
)
def test_a_verdict_follows_the_interval(seconds: tuple[float, ...], verdict: str) -> None:
    assert gained(off(1.0, 1.0, 1.0), auto(*seconds)).verdict == verdict


def test_equal_times_are_no_improvement_by_the_last_digit_of_a_float() -> None:
    equal = 0.1 + 0.2, 0.3  # differ by 5e-17
    found = gained(off(*[equal[0]] * 3), auto(*[equal[1]] * 3))
    assert found.verdict == "inconclusive"


def test_inconclusive_says_what_would_show_and_what_one_percent_takes() -> None:
    found = gained(off(*[1.0] * 6), auto(0.98, 1.02, 1.0, 0.99, 1.01, 1.0), 6)
    assert found.verdict == "inconclusive"
    assert found.smallest_detectable_percent is not None
    assert found.pairs_for_one_percent is not None
    assert 1.9 < found.smallest_detectable_percent < 2.2
    assert 15 < found.pairs_for_one_percent < 25
    assert f"6 pairs show an effect of {found.smallest_detectable_percent:.2g}% or more" in found.why
    assert f"for 1% it takes {found.pairs_for_one_percent} pairs" in found.why


def test_where_no_number_of_pairs_would_do_that_is_said() -> None:
    found = gained(off(1.0, 1.0, 1.0), auto(0.4, 2.0, 1.1))
    assert found.pairs_for_one_percent is None
    assert "more than 1,000" in found.null_because["pairs_for_one_percent"]
    assert "for 1% it takes more than 1,000 pairs" in found.why


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_pairs_have_no_interval_and_no_verdict(count: int) -> None:
    found = gained(off(*[1.0] * count), auto(*[0.5] * count), 6)
    assert found.verdict == "no verdict"
    assert "a verdict needs 3 or more" in found.why
    assert found.pair_deviation_percent is found.smallest_detectable_percent is None
    assert (found.speedup_percent is None) == (count == 0)
    if found.speedup_percent:
        assert (found.speedup_percent.value, found.speedup_percent.low) == (pytest.approx(100), None)
    assert all(name in found.null_because for name in ("pair_deviation_percent", "pairs_for_one_percent"))


def test_where_the_profile_was_not_applied_there_is_nothing_to_gain() -> None:
    found = gained(off(1.0, 1.0, 1.0), auto(0.5, 0.5, 0.501, applied=False))
    assert found.verdict == "no verdict"
    assert found.why == "nothing to gain here: the profile was not applied: every trace was empty"
    assert found.ratio is found.speedup_percent is None
    assert found.null_because["speedup_percent"] == "the profile was not applied: every trace was empty"
    assert found.null_because["ratio"] == found.null_because["speedup_percent"]
    assert [pair.speedup_percent for pair in found.pairs][:2] == [pytest.approx(100)] * 2  # as measured
    row = gain_table.table_text([found]).splitlines()[2]
    assert row.split()[-5:] == ["3", "-", "-", "no", "verdict"]


def test_one_pair_without_the_profile_is_enough_for_no_verdict() -> None:
    arm = auto(0.5, 0.5, 0.501)
    unsaid = Taken(msgspec.structs.replace(arm.taken[2].result, pgle_applied=None), arm.taken[2].place)
    found = gained(off(1.0, 1.0, 1.0), Arm("auto", {**arm.taken, 2: unsaid}, {}))
    assert (found.verdict, "does not say" in found.why) == ("no verdict", True)


# --- which pairs count --------------------------------------------------------------------------


def test_a_pair_that_lacks_a_run_is_left_out_and_named() -> None:
    base = Arm("off", off(1.0, None, 1.0, 1.0, None).taken, {2: "off-2 failed: no device"})
    found = gained(base, auto(0.5, 0.5, None, 0.5, None), 6)
    assert [pair.repeat for pair in found.pairs] == [1, 4]
    assert found.left_out == [
        "repeat 2: off: off-2 failed: no device",
        "repeat 3: auto: not started",
        "repeat 5, 6: off: not started; auto: not started",
    ]
    assert found.verdict == "no verdict"


def test_a_profiled_run_makes_no_pair() -> None:
    arm = auto(0.5, 0.5, 0.5, not_comparable=["profiled (--profile=xplane)"])
    found = gained(off(1.0, 1.0, 1.0), arm)
    assert found.pairs == []
    assert found.left_out[0] == "repeat 1: auto: auto-1 may not be compared: profiled (--profile=xplane)"


def test_a_run_whose_speed_is_not_claimed_makes_no_pair() -> None:
    base = off(1.0, 1.0, 1.0)
    silent = Arm("auto", {r: Taken(run(f"auto-{r}", None), r) for r in (1, 2, 3)}, {})
    assert gained(base, silent).left_out[0] == "repeat 1: auto: auto-1 has no speed: it is emulated"


def test_runs_of_a_pair_that_are_far_apart_in_the_order_are_named() -> None:
    base, arm = off(1.0, 1.0, 1.0), auto(0.9, 0.91, 0.9)
    late = Taken(arm.taken[2].result, 9)
    found = gained(base, Arm("auto", {**arm.taken, 2: late}, {}))
    (note,) = [note for note in found.notes if "began between" in note]
    assert note.startswith("repeat 2: 4 other runs began between its two (one was run again later)")
    assert not [note for note in gained(base, arm).notes if "began between" in note]


def test_of_three_ways_one_run_may_lie_between() -> None:
    base = off(1.0, 1.0, 1.0)
    arm = Arm("auto", {r: Taken(t.result, base.taken[r].place + 2) for r, t in auto(0.9, 0.9, 0.9).taken.items()}, {})
    assert not [note for note in gain.gain("c", base, arm, 3, ways=3).notes if "began between" in note]
    assert len([note for note in gain.gain("c", base, arm, 3, ways=2).notes if "began between" in note]) == 3


def test_runs_that_have_not_settled_are_counted_with_where_their_steps_begin() -> None:
    found = gained(off(1.0, 1.0, 1.0), auto(0.9, 0.9, 0.9, settled=False, first_step=8))
    (note,) = found.notes
    assert note.startswith("not settled: 3 of 6 runs; steps count off from step 2, auto from step 8")


def test_an_outlier_among_six_pairs_counts_less_and_is_named() -> None:
    way = (0.990, 0.991, 0.989, 0.990, 0.992, 1.08)
    found = gained(off(*[1.0] * 6), auto(*way), 6)
    assert found.verdict == "improvement"
    assert found.pairs[5].counted_as_percent is not None
    assert found.pairs[5].speedup_percent < -7 < -1 < found.pairs[5].counted_as_percent < 1
    assert "repeat 6 lies far from the others (-7.41%) and counts as" in found.notes[0]
    five = gained(off(*[1.0] * 5), auto(*way[1:]), 5)
    assert five.verdict == "inconclusive"  # of five none can be told to be the odd one
    assert all(pair.counted_as_percent is None for pair in five.pairs)


def test_where_most_pairs_are_equal_none_is_called_far_from_the_others() -> None:
    """Nothing measures the noise then: clipping to it would leave an interval without any width."""
    equal = gained(off(*[1.0] * 6), auto(*[0.99] * 4, 1.0, 1.01), 6)
    assert equal.speedup_percent is not None
    assert equal.speedup_percent.low is not None
    assert equal.speedup_percent.low < 0 < equal.speedup_percent.value
    assert (equal.verdict, equal.notes) == ("inconclusive", [])


# --- what the runs differ in --------------------------------------------------------------------


def with_flags(arm: Arm, text: str) -> Arm:
    return Arm(arm.way, {r: t._replace(xla_flags=text) for r, t in arm.taken.items()}, arm.absent)


def test_xla_flags_that_differ_beside_the_profile_are_named_once() -> None:
    base = with_flags(off(1.0, 1.0, 1.0), "--a=1 --b=2 --only_here=3")
    hand_over = "--xla_gpu_pgle_profile_file_or_directory_path=/made/here"
    found = gained(base, with_flags(auto(0.9, 0.9, 0.91), f"--b=2 --a=4 --xla_new=true {hand_over}"))
    assert found.notes == [
        "the arms also differ in: a=4 (off: 1), only_here=(not set) (off: 3), xla_new=true (off: not set): "
        "the gain is of both"
    ]


def test_arms_that_differ_in_the_profile_alone_have_no_note() -> None:
    base = with_flags(off(1.0, 1.0, 1.0), "--a=1 --bare")
    assert gained(base, with_flags(auto(0.9, 0.9, 0.91), "--bare --xla_gpu_pgle_x=y --a=1")).notes == []


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
        found = paired(logs.tolist())
        assert found is not None
        held += abs(found.centre) <= found.half_width
    assert held / DRAWS >= 0.94


def test_a_machine_of_two_states_is_held_less_often_as_the_docs_say() -> None:
    held = [paired(logs.tolist()) for logs in differences("two states", 6, two_states)]
    assert 0.90 <= np.mean([found is not None and abs(found.centre) <= found.half_width for found in held]) < 0.94


def power(case: str, count: int, effect: float) -> float:
    shown = 0
    for logs in differences(case, count, CASES[case]):
        found = paired((logs + effect).tolist())
        assert found is not None
        shown += found.centre > found.half_width
    return shown / DRAWS


def test_the_interval_is_narrow_enough_to_be_of_use() -> None:
    assert power("normal", 6, 0.01) >= 0.97
    assert power("drift", 6, 0.01) >= 0.97  # it falls on both runs of a pair
    assert power("3% outlier runs", 6, 0.02) >= 0.93
    assert power("10% outlier runs", 12, 0.02) >= 0.93


def test_without_clipping_one_run_in_thirty_hides_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "DEFAULT_PAIRS", 10**9)
    assert power("3% outlier runs", 6, 0.02) < 0.87


def test_clipping_so_few_that_none_can_be_told_would_hold_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "DEFAULT_PAIRS", 3)
    held = [paired(logs.tolist()) for logs in differences("normal", 3, normal)]
    assert np.mean([found is not None and abs(found.centre) <= found.half_width for found in held]) < 0.92


def test_a_normal_quantile_in_place_of_students_holds_too_little() -> None:
    """The negative control: 1.96 standard errors of three pairs."""
    logs = differences("normal", 3, normal)
    half_width = 1.96 * logs.std(axis=1, ddof=1) / math.sqrt(3)
    assert np.mean(np.abs(logs.mean(axis=1)) <= half_width) < 0.85


@pytest.mark.parametrize("count", [3, 6, 12])
def test_the_smallest_detectable_effect_is_seen_in_four_of_five_cases(count: int) -> None:
    effect = smallest_detectable(NOISE * math.sqrt(2), count)
    assert 0.75 <= power("normal", count, effect) <= 0.86
    assert pairs_for(effect, NOISE * math.sqrt(2)) == count


# --- as text and data ---------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_gain_and_says_shared_words_once() -> None:
    first = gained(off(1.0, 1.0, 1.0), auto(0.98, 0.981, 0.979))
    other = msgspec.structs.replace(gained(off(1.0, 1.0), auto(0.98, 0.9)), cell="--gpus=2", left_out=["repeat 3: x"])
    text = gain_table.table_text([first, other])
    lines = text.splitlines()
    assert "the cell --pgle=auto" in lines[2]
    assert lines[2].split()[3:5] == ["980", "ms"]
    assert "1 s off" in lines[2]
    assert "3 of 3" in lines[2]
    assert "+2.04%" in lines[2]
    assert lines[2].endswith("improvement")
    assert "2 of 3" in lines[3]
    assert lines[3].endswith("no verdict")
    assert "left out  --gpus=2 --pgle=auto: repeat 3: x" in text
    same = msgspec.structs.replace(first, cell="--gpus=2")
    assert gain_table.table_text([first, same]).count("all of the interval is above 0") == 1
