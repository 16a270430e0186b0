"""What is refused of a configuration, rule by rule, each with its arithmetic; and what the published ones come to."""

import pytest

from benchmarks.configs import Configs
from benchmarks.mlperf.admission import BrokenRule, broken_rules, refused
from benchmarks.mlperf.configuration import Configuration, configuration_of
from launch.mlperf.package import reference_points

CONFIGS = Configs()
LORA, EIGHT, FLUX = "llama2_70b_lora", "llama31_8b", "flux1"
# The published DGX H100 one.
H100 = {
    "TP": "4", "PP": "1", "CP": "1", "MINIBS": "4", "LR": "0.0004", "MAX_STEPS": "800", "VAL_CHECK_INTERVAL": "384",
    "DGXNNODES": "1", "DGXNGPU": "8", "WALLTIME_RUNANDTIME": "80", "WALLTIME": "90", "LIMIT_VAL_BATCHES": "1.0",
}  # fmt: skip
# A guide's own.
GUIDE = {**H100, "TP": "8", "MINIBS": "1", "LR": "0.0005", "MAX_STEPS": "1000", "VAL_CHECK_INTERVAL": "50"}


def config_of(variables: dict[str, str], name: str = LORA) -> Configuration:
    return configuration_of(variables, CONFIGS.submission(name))


def found(variables: dict[str, str], name: str = LORA) -> dict[str, BrokenRule]:
    definition, submission = CONFIGS.mlperf(name), CONFIGS.submission(name)
    points = reference_points(definition, submission.ruleset)
    return {one.rule: one for one in broken_rules(config_of(variables, name), definition, submission, points)}


def test_the_published_configuration_breaks_no_rule() -> None:
    assert found(H100) == {}
    assert (config_of(H100).batch, config_of(H100).gpus) == (8, 8)
    assert config_of(H100).batch_text() == "MINIBS 4 x (8 GPUs // (TP 4 x PP 1)) // CP 1 = 8"


def test_the_guides_configuration_is_outside_the_closed_division() -> None:
    bad = found(GUIDE)
    assert bad.keys() == {"evaluation cadence", "reference points"}
    assert {one.scope for one in bad.values()} == {"closed"}
    assert len(refused(list(bad.values()), "closed")) == 2
    assert refused(list(bad.values()), "open") == []
    assert "a global batch of 1 is smaller than the smallest" in bad["reference points"].what


def test_a_first_evaluation_after_the_last_step_is_refused_with_the_arithmetic() -> None:
    one = found({**GUIDE, "MAX_STEPS": "100", "VAL_CHECK_INTERVAL": "1152"})["first evaluation"]
    assert one.what == "the first evaluation, at step 3456, comes after the last step, 100"
    assert one.arithmetic.endswith("floor(0.125 x 1 + 2) = 2 skipped: (2 + 1) x 1152 = 3456 > MAX_STEPS 100")
    assert one.refuses("open")


@pytest.mark.parametrize(
    ("change", "rule", "words"),
    [
        ({"TP": "3"}, "layout", "one replica takes TP 3 x PP 1 x CP 1 = 3"),
        ({"MINIBS": "3", "MBS": "2"}, "micro batch", "3 / 2 = 1.5"),
        ({"TP": "8", "DGXNGPU": "4"}, "batch", "(4 GPUs // (TP 8 x PP 1)) // CP 1 = 0"),
        ({"WALLTIME": "85"}, "time limit", "5 + NEXP 1 x (WALLTIME_RUNANDTIME 80 + 5) = 90"),
        ({"NEXP": "10"}, "time limit", "5 + NEXP 10 x (WALLTIME_RUNANDTIME 80 + 5) = 855"),
        ({"LIMIT_VAL_BATCHES": "0.5"}, "LIMIT_VAL_BATCHES", "only '1.0'"),
        ({"LIMIT_VAL_BATCHES": "1"}, "LIMIT_VAL_BATCHES", "without a dot, is one batch"),
        ({"SKIP_EVALS": "0"}, "SKIP_EVALS", "the rules fix how many"),
        ({"MASTER_PORT": "29500"}, "MASTER_PORT", "may be another job's"),
        ({"MAX_STEPS": "250"}, "steps", "MAX_STEPS 250 x 8 = 2,000; the reference needs 3,179 samples"),
        ({"MLPERF_DIVISION": "best"}, "division", "there are closed and open"),
    ],
)
def test_what_cannot_work_or_would_fake_its_status_is_refused_in_any_division(
    change: dict[str, str], rule: str, words: str
) -> None:
    one = found({**H100, **change})[rule]
    assert words in one.arithmetic
    assert one.refuses("closed") and one.refuses("open")
    assert one.cure


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"MINIBS": "128"}, "reference points"),  # 256: beyond the largest
        ({"VAL_CHECK_INTERVAL": "400"}, "evaluation cadence"),
        ({"CLEAR_CACHES": "0"}, "caches"),
    ],
)
def test_what_the_closed_division_alone_forbids(change: dict[str, str], rule: str) -> None:
    one = found({**H100, **change})[rule]
    assert one.refuses("closed") and not one.refuses("open")


def test_a_batch_between_reference_points_is_interpolated_and_not_refused() -> None:
    assert found({**H100, "MINIBS": "6"}) == {}  # 12: between 8 and 16
    assert found({**H100, "MINIBS": "16"}) == {}  # 32: a point that is pruned, so between 16 and 128


def test_more_steps_than_the_reference_are_noted() -> None:
    one = found({**H100, "MAX_STEPS": "1150"})["steps"]
    assert one.scope == "note"
    assert not one.refuses("closed")


def test_llama31_8b_counts_its_interval_in_steps_and_has_its_schedules_length_fixed() -> None:
    base = {
        "TENSOR_MODEL_PARALLEL": "1", "CONTEXT_PARALLEL": "2", "MINIBS": "1", "LR": "0.0008", "MAX_STEPS": "1200000",
        "VAL_CHECK_INTERVAL": "342", "DGXNNODES": "18", "DGXNGPU": "4", "TARGET_LOG_PPL": "3.3",
    }  # fmt: skip
    assert found(base, EIGHT) == {}
    assert (
        "VAL_CHECK_INTERVAL=343 makes 343"
        in found({**base, "VAL_CHECK_INTERVAL": "343"}, EIGHT)["evaluation cadence"].arithmetic
    )
    assert found({**base, "MAX_STEPS": "1000"}, EIGHT)["steps"].refuses("open") in (True, False)
    assert found({**base, "TARGET_LOG_PPL": "3.5"}, EIGHT)["TARGET_LOG_PPL"].refuses("open")
    assert found({**base, "VAL_SAMPLES": "64"}, EIGHT)["VAL_SAMPLES"].refuses("open")


def test_flux1_states_its_whole_batch() -> None:
    base = {"BATCHSIZE": "1024", "MBS": "32", "DGXNNODES": "4", "DGXNGPU": "8", "VAL_CHECK_INTERVAL": "262144"}
    assert found(base, FLUX) == {}
    assert "1000 / 1024" in found({**base, "BATCHSIZE": "1000"}, FLUX)["batch"].arithmetic
    assert found({**base, "TARGET_ACCURACY": "0.6"}, FLUX)["TARGET_ACCURACY"].refuses("open")
