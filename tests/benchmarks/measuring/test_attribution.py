"""Whose FLOP convention a foreign log's TFLOP/s was: told from its own throughput, or said not to be."""

import pytest

from benchmarks.configs import Configs
from benchmarks.logs.foreign import summarise_foreign
from benchmarks.measuring.figures import Resolution
from benchmarks.measuring.utilisation import Workload
from benchmarks.values import Step

CONFIGS = Configs()


def notes_of(
    model: str,
    length: int,
    batch: int,
    steps: list[Step],
    resolution: float = 0.001,
    rates: Resolution = lambda _: 0.001,
    gpus: int = 64,
) -> list[str]:
    found = summarise_foreign(
        steps,
        Workload(
            model=CONFIGS.model(model),
            hardware=CONFIGS.hardware("h100"),
            task="pretrain",
            dtype="bf16",
            gpus=gpus,
            sequence_length=length,
            global_batch_size=batch,
        ),
        window="last",
        seconds_resolution=lambda _: resolution,
        rate_resolution=rates,
    )
    notes = found["notes"]
    assert isinstance(notes, list)
    return [note for note in notes if note.startswith("its TFLOP/s are")]


def steps_of(seconds: float, tflops: float | None, tokens: float | None = None) -> list[Step]:
    return [
        Step(
            step=number,
            seconds=seconds,
            loss=6.0 - number,
            tokens=None,
            framework_tflops_per_device=tflops,
            framework_tokens_per_second_per_device=tokens,
        )
        for number in range(3)
    ]


def test_the_recipes_own_line_was_counted_over_the_whole_square() -> None:
    """completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, Tokens/s/device: 1035.970"""
    (note,) = notes_of("llama2_70b", 4096, 128, steps_of(7.908, 460.48, 1035.97))
    assert note.endswith("444.5 GFLOP a token: the convention is recipe (torchtitan counts the same here)")


def test_a_younger_maxtext_halves_attention() -> None:
    """The same step, as MaxText has counted since 2025-07: 1754.67 TFLOP a sequence."""
    (note,) = notes_of("llama2_70b", 4096, 128, steps_of(7.908, 460.48 * 1754.67 / 1820.64, 1035.97))
    assert note.endswith("428.4 GFLOP a token: the convention is causal")


@pytest.mark.parametrize(
    ("gflops", "convention"),
    [(481.3, "recipe"), (449.3, "causal")],  # NVIDIA's published Llama 3 70B figures, up to 25.07 and since
)
def test_without_a_printed_throughput_the_step_time_gives_it(gflops: float, convention: str) -> None:
    tokens_per_second_per_gpu = 8192 * 128 / 64 / 11.31
    steps = steps_of(11.31, gflops * 1e9 * tokens_per_second_per_gpu / 1e12)
    (note,) = notes_of("llama3_70b", 8192, 128, steps, resolution=0.01)
    assert f"the convention is {convention}" in note


def test_a_coarse_step_time_leaves_it_open_and_says_so() -> None:
    (note,) = notes_of("llama2_70b", 4096, 128, steps_of(8.0, 460.48), resolution=1.0)
    assert "alike within what the printed digits tell" in note


@pytest.mark.parametrize(
    ("tflops", "rates", "ending"),
    [
        (45.0, 0.1, "the convention is causal"),  # 44.975 to more digits
        (45.2, 0.1, "no convention gives that; the nearest is causal, +0.5% off"),
        (52.0, 10.0, "recipe and palm and torchtitan are alike within what the printed digits tell (9.67%)"),
        (44.992, 0.001, "the convention is causal"),  # Megatron's own, of a vocabulary padded to 129,024
    ],
)
def test_what_the_last_digit_of_the_tflops_leaves_open(tflops: float, rates: float, ending: str) -> None:
    """Llama 3.1 8B on 8 GPUs, 150 s a step, as Megatron prints it: no throughput, one decimal of a TFLOP/s."""
    (note,) = notes_of("llama31_8b", 8192, 128, steps_of(150.0, tflops), 0.0001, lambda _: rates, gpus=8)
    assert note.endswith(f": {ending}")


def test_a_throughput_of_few_digits_leaves_it_open() -> None:
    """Recipe and causal are 3.6% apart; a hundred of 1,030 tokens/s is more."""
    (note,) = notes_of(
        "llama2_70b", 4096, 128, steps_of(7.908, 450.0, 1030.0), rates=lambda rate: 100.0 if rate == 1030 else 0.001
    )
    assert "alike within what the printed digits tell" in note


def test_a_figure_that_no_convention_gives_is_said() -> None:
    (note,) = notes_of("llama2_70b", 4096, 128, steps_of(7.908, 300.0, 1035.97))
    assert "no convention gives that; the nearest is causal" in note


def test_a_log_without_tflops_says_nothing() -> None:
    assert notes_of("llama2_70b", 4096, 128, steps_of(7.908, None, 1035.97)) == []
