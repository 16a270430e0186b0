"""The FLOP convention of a foreign log's TFLOP/s, which follows from its throughput or stays unknown."""

import pytest

from benchmarks.configs import Configs
from benchmarks.logs.foreign import summarise_foreign
from benchmarks.measuring.figures import Resolution
from benchmarks.measuring.utilisation import Workload
from benchmarks.values import Step

CONFIGS = Configs()
ALIKE = "rounding of the printed digits"


def notes_of(
    work: tuple[str, int, int, int],
    seconds: float,
    tflops: float | None,
    tokens: float | None = None,
    resolution: float = 0.001,
    rates: Resolution = lambda _: 0.001,
) -> list[str]:
    model, length, batch, gpus = work
    found = summarise_foreign(
        [
            Step(step=number, seconds=seconds, loss=6.0 - number, tokens=None, framework_tflops_per_device=tflops,
                 framework_tokens_per_second_per_device=tokens)
            for number in range(3)
        ],
        Workload(model=CONFIGS.model(model), hardware=CONFIGS.hardware("h100"), task="pretrain", dtype="bf16",
                 gpus=gpus, sequence_length=length, global_batch_size=batch),
        window="last",
        seconds_resolution=lambda _: resolution,
        rate_resolution=rates,
    )  # fmt: skip
    return [note for note in found.notes if note.startswith("the log's TFLOP/s imply")]


SEED = ("llama2_70b", 4096, 128, 64)  # completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, ...: 1035.970


@pytest.mark.parametrize(
    ("seconds", "tflops", "tokens", "resolution", "ending"),
    [
        (7.908, 460.48, 1035.97, 0.001, "444.5 GFLOP per token: the convention is recipe (the same count"),
        (7.908, 460.48 * 1754.67 / 1820.64, 1035.97, 0.001, "428.4 GFLOP per token: the convention is causal"),
        (7.908, 300.0, 1035.97, 0.001, "no convention gives this number; the nearest is causal"),
        (8.0, 460.48, None, 1.0, ALIKE),  # a coarse step time
    ],
)
def test_the_convention_of_the_70b(
    seconds: float, tflops: float, tokens: float | None, resolution: float, ending: str
) -> None:
    (note,) = notes_of(SEED, seconds, tflops, tokens, resolution)
    assert ending in note


@pytest.mark.parametrize(
    ("gflops", "convention"),
    [(481.3, "recipe"), (449.3, "causal")],  # NVIDIA's published Llama 3 70B figures, up to 25.07 and since
)
def test_without_a_printed_throughput_the_step_time_gives_it(gflops: float, convention: str) -> None:
    tokens_per_second_per_gpu = 8192 * 128 / 64 / 11.31
    tflops = gflops * 1e9 * tokens_per_second_per_gpu / 1e12
    (note,) = notes_of(("llama3_70b", 8192, 128, 64), 11.31, tflops, resolution=0.01)
    assert f"the convention is {convention}" in note


@pytest.mark.parametrize(
    ("tflops", "rates", "ending"),
    [
        (45.0, 0.1, "the convention is causal"),  # 44.975 to more digits
        (45.2, 0.1, "no convention gives this number; the nearest is causal, +0.5% off"),
        (52.0, 10.0, "recipe and palm and torchtitan differ by less than the rounding of the printed digits (9.67%)"),
    ],
)
def test_what_the_last_digit_of_the_tflops_leaves_open(tflops: float, rates: float, ending: str) -> None:
    """Llama 3.1 8B on 8 GPUs, 150 s a step, as Megatron prints it: no throughput, one decimal of a TFLOP/s."""
    (note,) = notes_of(("llama31_8b", 8192, 128, 8), 150.0, tflops, None, 0.0001, lambda _: rates)
    assert note.endswith(f": {ending}")


def test_few_digits_leave_the_convention_open_and_no_tflops_give_no_convention() -> None:
    """Recipe and causal are 3.6% apart; a hundred of 1,030 tokens/s is more."""
    (note,) = notes_of(SEED, 7.908, 450.0, 1030.0, rates=lambda rate: 100.0 if rate == 1030 else 0.001)
    assert ALIKE in note
    assert notes_of(SEED, 7.908, None, 1035.97) == []
