"""The MLPerf benchmarks as data: what the rules fix, and when the first evaluation comes."""

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.measuring.flops import ADAPTED_MATRICES
from benchmarks.mlperf.definitions import (
    Target,
    first_evaluation,
    global_batch_size,
)

CONFIGS = Configs()


@pytest.mark.parametrize("name", CONFIGS.names("mlperf"))
def test_every_row_names_its_source_and_what_exists(name: str) -> None:
    row = CONFIGS.mlperf(name)
    assert row.source and row.date
    assert row.rulesets == sorted(row.rulesets) and row.rulesets
    assert row.model is None or row.model in CONFIGS.names("models")
    assert (row.lora is not None) == (row.task == "lora")
    assert set(row.lora.targets if row.lora else []) <= set(ADAPTED_MATRICES)
    assert row.stands_for is None or row.stands_for in CONFIGS.names("mlperf")


def test_an_unknown_benchmark_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'llama2_70b_lora'"):
        CONFIGS.mlperf("llama2_70b_loar")


@pytest.mark.parametrize(
    ("knobs", "batch"),
    [
        ((1, 8, 8, 1, 1), 1),  # a guide: TP8, MINIBS 1
        ((4, 8, 4, 1, 1), 8),  # the published DGX H100
        ((1, 72, 1, 1, 8), 9),  # 72 GB300, CP8
        ((1, 72, 1, 1, 2), 36),  # llama31_8b on 72 GPUs
        ((1, 4, 8, 1, 1), 0),  # fewer GPUs than one model takes
    ],
)
def test_the_batch_of_nvidias_knobs(knobs: tuple[int, int, int, int, int], batch: int) -> None:
    assert global_batch_size(*knobs) == batch


def test_the_first_evaluation_is_where_published_logs_have_it() -> None:
    """MLCommons training_results_v5.1, NVIDIA, theia_ngpu72: steps 172 of llama2_70b_lora and 342 of llama31_8b."""
    lora = first_evaluation(CONFIGS.mlperf("llama2_70b_lora"), 9)
    assert (lora.steps_apart, lora.skipped, lora.step, lora.samples) == (43, 3, 172, 1548)
    pretrain = first_evaluation(CONFIGS.mlperf("llama31_8b"), 36)
    assert (pretrain.step, pretrain.samples) == (342, 12312)
    assert first_evaluation(CONFIGS.mlperf("flux1"), 2304).step == 114


def test_the_interval_knob_counts_samples_in_one_and_steps_in_the_other() -> None:
    seed = first_evaluation(CONFIGS.mlperf("llama2_70b_lora"), 1, knob=1152)
    assert (seed.steps_apart, seed.step) == (1152, 3456)
    assert first_evaluation(CONFIGS.mlperf("llama31_8b"), 36, knob=342).samples == 12312


def test_a_loss_of_nothing_reaches_no_target() -> None:
    target = Target(metric="eval_loss", at_most=0.925)
    reached = [target.reached_by(value) for value in (0.925, 0.926, 0.0, -1.0, float("nan"))]
    assert reached == [True, False, False, False, False]
