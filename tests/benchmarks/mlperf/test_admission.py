"""What is refused of a configuration, rule by rule, each with its arithmetic; and what the published ones come to."""

import pytest

from benchmarks.configs import Configs
from benchmarks.mlperf.admission import BrokenRule, broken_rules, refused
from benchmarks.mlperf.definitions import read_definition
from benchmarks.mlperf.package import reference_points
from benchmarks.mlperf.submission import configuration_of, read_submission

CONFIGS = Configs()
LORA, EIGHT, FLUX = "llama2_70b_lora", "llama31_8b", "flux1"
# The published ones: DGX H100, 72 GB300, 4 nodes.
PUBLISHED = {
    LORA: {
        "TP": "4", "PP": "1", "CP": "1", "MINIBS": "4", "LR": "0.0004", "MAX_STEPS": "800", "DGXNNODES": "1",
        "VAL_CHECK_INTERVAL": "384", "DGXNGPU": "8", "WALLTIME_RUNANDTIME": "80", "WALLTIME": "90",
        "LIMIT_VAL_BATCHES": "1.0",
    },
    EIGHT: {
        "TENSOR_MODEL_PARALLEL": "1", "CONTEXT_PARALLEL": "2", "MINIBS": "1", "LR": "0.0008", "DGXNNODES": "18",
        "VAL_CHECK_INTERVAL": "342", "DGXNGPU": "4", "TARGET_LOG_PPL": "3.3", "MAX_STEPS": "1200000",
    },
    FLUX: {"BATCHSIZE": "1024", "MBS": "32", "DGXNNODES": "4", "DGXNGPU": "8", "VAL_CHECK_INTERVAL": "262144"},
}  # fmt: skip
# A guide's own.
GUIDE = {"TP": "8", "MINIBS": "1", "LR": "0.0005", "MAX_STEPS": "1000", "VAL_CHECK_INTERVAL": "50"}


def found(change: dict[str, str], name: str = LORA) -> dict[str, BrokenRule]:
    definition, submission = read_definition(CONFIGS, name), read_submission(CONFIGS, name)
    points = reference_points(definition, submission.ruleset)
    config = configuration_of({**PUBLISHED[name], **change}, submission)
    return {one.rule: one for one in broken_rules(config, definition, submission, points)}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (LORA, {}),
        (LORA, {"MINIBS": "6"}),  # 12: between the points of 8 and 16
        (LORA, {"MINIBS": "16"}),  # 32: a point that is pruned, so between 16 and 128
        (EIGHT, {}),
        (FLUX, {}),
    ],
)
def test_the_published_configurations_break_no_rule(name: str, change: dict[str, str]) -> None:
    assert found(change, name) == {}


def test_what_a_configuration_comes_to() -> None:
    config = configuration_of(PUBLISHED[LORA], read_submission(CONFIGS, LORA))
    assert (config.batch, config.gpus) == (8, 8)
    assert config.batch_text() == "MINIBS 4 x (8 GPUs // (TP 4 x PP 1)) // CP 1 = 8"


def test_the_guides_configuration_is_outside_the_closed_division() -> None:
    bad = found(GUIDE)
    assert bad.keys() == {"evaluation cadence", "reference points"}
    assert len(refused(list(bad.values()), "closed")) == 2
    assert refused(list(bad.values()), "open") == []
    assert "a global batch of 1 is smaller than the smallest" in bad["reference points"].what


EVERYWHERE, CLOSED, NOTED = (True, True), (True, False), (False, False)
LATE = {**GUIDE, "MAX_STEPS": "100", "VAL_CHECK_INTERVAL": "1152"}


@pytest.mark.parametrize(
    ("name", "change", "rule", "where", "words"),
    [
        (LORA, {"TP": "3"}, "layout", EVERYWHERE, "one replica takes TP 3 x PP 1 x CP 1 = 3"),
        (LORA, {"MINIBS": "3", "MBS": "2"}, "micro batch", EVERYWHERE, "3 / 2 = 1.5"),
        (LORA, {"TP": "8", "DGXNGPU": "4"}, "batch", EVERYWHERE, "(4 GPUs // (TP 8 x PP 1)) // CP 1 = 0"),
        (LORA, {"WALLTIME": "85"}, "time limit", EVERYWHERE, "5 + NEXP 1 x (WALLTIME_RUNANDTIME 80 + 5) = 90"),
        (LORA, {"NEXP": "10"}, "time limit", EVERYWHERE, "5 + NEXP 10 x (WALLTIME_RUNANDTIME 80 + 5) = 855"),
        (LORA, {"LIMIT_VAL_BATCHES": "0.5"}, "LIMIT_VAL_BATCHES", EVERYWHERE, "only '1.0'"),
        (LORA, {"LIMIT_VAL_BATCHES": "1"}, "LIMIT_VAL_BATCHES", EVERYWHERE, "without a dot, is one batch"),
        (LORA, {"SKIP_EVALS": "0"}, "SKIP_EVALS", EVERYWHERE, "the rules fix how many"),
        (LORA, {"MASTER_PORT": "29500"}, "MASTER_PORT", EVERYWHERE, "may be another job's"),
        (LORA, {"MAX_STEPS": "250"}, "steps", EVERYWHERE, "250 x 8 = 2,000; the reference needs 3,179 samples"),
        (LORA, {"MLPERF_DIVISION": "best"}, "division", EVERYWHERE, "there are closed and open"),
        (LORA, LATE, "first evaluation", EVERYWHERE, "2 skipped: (2 + 1) x 1152 = 3456 > MAX_STEPS 100"),
        (EIGHT, {"TARGET_LOG_PPL": "3.5"}, "TARGET_LOG_PPL", EVERYWHERE, ""),
        (EIGHT, {"VAL_SAMPLES": "64"}, "VAL_SAMPLES", EVERYWHERE, ""),
        (FLUX, {"BATCHSIZE": "1000"}, "batch", EVERYWHERE, "1000 / 1024"),
        (FLUX, {"TARGET_ACCURACY": "0.6"}, "TARGET_ACCURACY", EVERYWHERE, ""),
        (LORA, {"MINIBS": "128"}, "reference points", CLOSED, ""),  # 256: beyond the largest
        (LORA, {"VAL_CHECK_INTERVAL": "400"}, "evaluation cadence", CLOSED, ""),
        (LORA, {"CLEAR_CACHES": "0"}, "caches", CLOSED, ""),
        (EIGHT, {"VAL_CHECK_INTERVAL": "343"}, "evaluation cadence", CLOSED, "VAL_CHECK_INTERVAL=343 makes 343"),
        (LORA, {"MAX_STEPS": "1150"}, "steps", NOTED, "the learning rate ends with the last step"),
    ],
)
def test_a_broken_rule_is_refused_where_it_must_be(
    name: str, change: dict[str, str], rule: str, where: tuple[bool, bool], words: str
) -> None:
    one = found(change, name)[rule]
    assert (one.refuses("closed"), one.refuses("open")) == where
    assert words in one.arithmetic and one.cure
