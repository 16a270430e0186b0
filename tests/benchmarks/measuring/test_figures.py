"""The uniform figures against numbers worked out by hand and the tables that were published with the recipe."""

from collections.abc import Sequence

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.measuring.figures import Figures, measure
from benchmarks.measuring.utilisation import Workload, fastest_possible_seconds
from benchmarks.values import Step

CONFIGS = Configs()


def work(
    dtype: str = "bf16",
    gpus: int = 64,
    global_batch_size: int = 128,
    hardware: str = "h100",
    model: str = "llama2_70b",
    sequence_length: int = 4096,
) -> Workload:
    return Workload(
        model=CONFIGS.model(model),
        hardware=CONFIGS.hardware(hardware),
        task="pretrain",
        dtype=dtype,
        gpus=gpus,
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
    )


def tiny(**changed: object) -> Workload:
    return work(
        **{
            "gpus": 1,
            "global_batch_size": 2,
            "hardware": "cpu",
            "model": "llama2_tiny",
            "sequence_length": 128,
            **changed,
        }  # type: ignore[arg-type]
    )


def steps_of(*seconds: float | None, ends: Sequence[float] | None = None) -> list[Step]:
    return [
        Step(
            step=number,
            seconds=value,
            loss=5.0,
            tokens=None,
            elapsed_seconds=None if ends is None else ends[number],
        )
        for number, value in enumerate(seconds)
    ]


def figures_of(workload: Workload, *seconds: float | None, rule: str = "steady") -> Figures:
    return measure(workload, steps_of(*seconds), rule)[0]


# --- by hand -------------------------------------------------------------------------------------

FLOPS_A_SEQUENCE = 4096 * 444_491_366_400


def test_the_worked_example_to_the_last_digit() -> None:
    """128 x 4096 tokens in 6.999 s; 4096 x 444,491,366,400 FLOPs a sequence over 64 x 989 TFLOP/s."""
    figures = figures_of(work(), 30.0, 6.999, rule="last")
    assert figures.tokens_per_second == pytest.approx(74908.987, abs=0.01)
    assert figures.days_per_trillion_tokens == pytest.approx(154.509, abs=0.001)
    assert figures.mfu is not None
    by_name = {entry.convention: entry for entry in figures.mfu}
    by_hand = 128 * FLOPS_A_SEQUENCE / 6.999 / 64 / 989e12 * 100
    assert by_name["recipe"].percent == pytest.approx(by_hand, rel=1e-12)
    # Half of 12 x 80 layers x 8192 x 4096 is not counted: 1754.67 instead of 1820.64 TFLOP a sequence.
    assert by_name["causal"].percent == pytest.approx(by_hand * 1754.67 / 1820.64, rel=1e-5)
    assert {entry.peak_tflops for entry in figures.mfu if entry.table == "datasheet"} == {989.0}
    assert all(entry.peak_source for entry in figures.mfu)


# --- what cannot be known -------------------------------------------------------------------------


SPEED = ("tokens_per_second", "tokens_per_second_effective", "tokens_per_second_per_gpu", "days_per_trillion_tokens")


@pytest.mark.parametrize("seconds", [(), (9.0,), (9.0, None), (None, None)])
def test_without_a_counted_step_every_figure_is_null_with_its_reason(seconds: tuple[float | None, ...]) -> None:
    figures = figures_of(tiny(), *seconds)
    assert figures.window.counted == 0
    for name in (*SPEED, "mfu"):
        assert getattr(figures, name) is None
        assert figures.null_because[name] == "no step of the run is in the window"
    assert figures.complaints == ["no step of the run is in the window"]


@pytest.mark.parametrize("hardware", ["cpu", "h100"])
def test_steps_of_no_time_are_no_infinite_speed(hardware: str) -> None:
    figures = figures_of(tiny(hardware=hardware), 3.0, 0.0, 0.0, rule="last")
    assert figures.tokens_per_second is None
    assert figures.complaints == ["the median step took no measurable time"]


def test_one_two_and_nine_steps() -> None:
    one = figures_of(tiny(), 3.0, 0.5)
    assert (one.seconds_per_step.median, one.seconds_per_step.mean, one.seconds_per_step.excess) == (0.5, 0.5, 0.0)
    assert one.seconds_per_step.stdev is None
    assert one.null_because["seconds_per_step.stdev"] == "one counted step has no spread"
    assert one.null_because["seconds_per_step.ci95"] == "an interval needs at least 9 counted steps, and there are 1"
    two = figures_of(tiny(), 3.0, 0.5, 0.7)
    assert (two.seconds_per_step.median, two.seconds_per_step.ci95) == (pytest.approx(0.6), None)
    assert two.seconds_per_step.stdev == pytest.approx(0.1 * 2**0.5)
    nine = figures_of(tiny(), 3.0, *[0.5, 0.6, 0.7] * 3)
    assert nine.seconds_per_step.ci95 == [pytest.approx(0.5), pytest.approx(0.7)]
    assert not {"seconds_per_step.ci95", "seconds_per_step.stdev"} & nine.null_because.keys()


# --- what cannot be right -------------------------------------------------------------------------


def test_above_the_peak_is_a_complaint() -> None:
    figures = figures_of(work(), 30.0, 3.0, rule="last")
    (complaint,) = figures.complaints
    assert "1 of 2 steps are faster than 64 x h100 can be" in complaint
    assert figures_of(work(), *[30.0] * 9, 3.0, rule="last").complaints  # the one that counts


def test_the_fastest_step_there_can_be() -> None:
    """By the convention that counts the fewest FLOPs: causal, 1754.67e12 a sequence."""
    assert fastest_possible_seconds(work()) == pytest.approx(128 * 1754.67e12 / (989e12 * 64), rel=1e-5)
    assert fastest_possible_seconds(tiny()) is None


def test_steps_that_a_recipe_window_asks_for_and_the_run_lacks_are_a_complaint() -> None:
    figures = figures_of(tiny(), 3.0, 1.0, 1.0, rule="1-4")
    assert figures.complaints == ["window 1-4: 2 of its steps are missing from the run"]


# --- notes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counted", "notes"), [(8, 0), (9, 1), (29, 1), (30, 0)])
def test_an_interval_of_few_steps_has_a_note(counted: int, notes: int) -> None:
    figures = figures_of(tiny(), 3.0, *[0.5, 0.6] * (counted // 2), *[0.5] * (counted % 2))
    assert figures.window.counted == counted
    assert len(figures.notes) == notes


@pytest.mark.parametrize(("fast", "valid", "notes"), [(0, True, 0), (1, True, 1), (19, True, 1), (21, False, 0)])
def test_each_counted_step_faster_than_the_peak_is_noted_or_makes_the_result_invalid(
    fast: int, valid: bool, notes: int
) -> None:
    workload = work()
    least = fastest_possible_seconds(workload) or 0.0
    seconds = [least * (0.6 if 1 <= number <= fast else 1.2) for number in range(100)]
    steps = steps_of(*seconds, ends=[sum(seconds[: number + 1]) for number in range(100)])
    figures, _ = measure(workload, steps, "1-99")
    assert (not figures.complaints, len(figures.notes)) == (valid, notes)


# --- effective throughput and excess ----------------------------------------------------------------


def test_effective_throughput_counts_excluded_steps_inside_the_window() -> None:
    """Steps 1 to 6 with the artefact pair 0.01 + 2.0: 6 steps in 6.01 s, while the median says 1 s."""
    figures, marked = measure(tiny(), steps_of(3.0, 1.0, 1.0, 0.01, 2.0, 1.0, 1.0), "steady")
    assert [step.excluded_because for step in marked] == ["compile", None, None, "artefact", "artefact", None, None]
    assert figures.tokens_per_second == 256
    assert figures.tokens_per_second_effective == pytest.approx(256 * 6 / 6.01)


def test_effective_throughput_takes_no_step_outside_the_window() -> None:
    figures = figures_of(tiny(), 30.0, 1.0, 1.0, 2.0, 1.0, 50.0, rule="2-4")
    assert figures.tokens_per_second_effective == pytest.approx(256 * 3 / 4.0)


@pytest.mark.parametrize("reason", ["profiler", "pgle"])
def test_effective_throughput_and_excess_agree_on_steps_that_were_recorded(reason: str) -> None:
    """Steps 3 and 4 were slow under a profiler: neither their tokens nor their time is in any figure."""
    steps = steps_of(9.0, 1.0, 1.0, 5.0, 7.0, 1.0, 1.2)
    steps[3:5] = [msgspec.structs.replace(step, excluded_because=reason) for step in steps[3:5]]
    figures, _ = measure(tiny(), steps, "1-6")
    assert figures.tokens_per_second_effective == pytest.approx(256 * 4 / 4.2)
    assert figures.tokens_per_second is not None
    assert figures.seconds_per_step.excess == pytest.approx(0.05)
    assert figures.tokens_per_second / figures.tokens_per_second_effective == pytest.approx(1.05)


@pytest.mark.parametrize("lost", [None, float("nan"), -1.0, float("inf")])
def test_a_step_without_a_time_inside_leaves_the_effective_figure_unknown(lost: float | None) -> None:
    figures = figures_of(tiny(), 3.0, 1.0, lost, 1.0, 1.0)
    assert figures.tokens_per_second == 256
    assert figures.tokens_per_second_effective is None
    assert figures.null_because["tokens_per_second_effective"] == "a step inside the window has no usable time"
