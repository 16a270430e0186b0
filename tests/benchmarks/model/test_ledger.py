"""The ledger: the peak of two precisions, and whose convention a printed figure was."""

import pytest

from benchmarks.configs import Configs
from benchmarks.model import flops
from benchmarks.model.ledger import (
    LAYER_MATMULS,
    attribute,
    forward_flops,
    hardware_flops_per_token,
    mix_of_peaks,
)
from benchmarks.values import Model, Recompute

CONFIGS = Configs()
LLAMA2 = CONFIGS.model("llama2_70b")
H100 = CONFIGS.hardware("h100")
LLAMAS = [model for model in map(CONFIGS.model, CONFIGS.names("models")) if flops.is_llama(model)]
PRETRAINING = flops.conventions_for("pretrain", LLAMA2)


# --- what is computed twice -------------------------------------------------------------------------

AS_XLA = frozenset(LAYER_MATMULS) - {"mlpwo"}  # all of a layer except its output, which is not read again
# Matmul FLOPs of a sequence of 4096, as counted in the compiled program of Llama 2 70B (plain attention).
COUNTED = [
    ("full", AS_XLA, 2.271436e15),
    ("minimal", frozenset({"context"}), 1.8647e15),
    ("none", frozenset(), 1.82064e15),
]


@pytest.mark.parametrize(
    ("matmuls", "flops_a_sequence"), [row[1:] for row in COUNTED], ids=[row[0] for row in COUNTED]
)
def test_the_70b_multiplies_what_its_compiled_program_holds(matmuls: frozenset[str], flops_a_sequence: float) -> None:
    counted = 4096 * hardware_flops_per_token(LLAMA2, 4096, Recompute(matmuls=matmuls), "recipe")
    assert counted == pytest.approx(flops_a_sequence, rel=5e-5)  # written down with five digits


@pytest.mark.parametrize("model", LLAMAS, ids=lambda m: m.name)
def test_the_forward_pass_is_a_third_of_what_the_conventions_count(model: Model) -> None:
    """With GQA and without, tied or not: a layer's matmuls forward, three times over, and the head's."""
    for name in ("recipe", "causal"):
        share = flops.CONVENTIONS[name].attention_share
        forward = model.layers * sum(forward_flops(model, 2048, share).values())
        head = 6 * flops.embedding_parameters(model)
        assert 3 * forward + head == pytest.approx(flops.flops_per_token(model, 2048, name), rel=1e-12)


# --- a mix of precisions ----------------------------------------------------------------------------


def test_the_mixed_peak_lies_between_and_nearer_to_what_does_most_of_the_work() -> None:
    peak = mix_of_peaks(LLAMA2, 4096, H100.peaks, "recipe")
    assert peak is not None
    assert 989 < peak < 1979
    assert peak == pytest.approx(1839.07, abs=0.01)
    longer = mix_of_peaks(LLAMA2, 32768, H100.peaks, "recipe")  # more attention, which stays in bf16
    assert longer is not None
    assert longer < peak


def test_without_fp8_there_is_no_mix() -> None:
    assert mix_of_peaks(LLAMA2, 4096, CONFIGS.hardware("a100").peaks, "recipe") is None
    assert mix_of_peaks(LLAMA2, 4096, CONFIGS.hardware("cpu").peaks, "recipe") is None


# --- whose convention was it? -----------------------------------------------------------------------


@pytest.mark.parametrize("name", PRETRAINING)
def test_every_convention_is_recognised_by_its_own_figure(name: str) -> None:
    exact = flops.flops_per_token(LLAMA2, 4096, name)
    found = attribute(LLAMA2, 4096, exact, 0.0002, PRETRAINING)
    # torchtitan counts the norms, unlike the recipe: 4e-6, which no printed value shows.
    assert found.convention == ("recipe" if name == "torchtitan" else name)
