"""What is refused of a configuration, rule by rule, each with its arithmetic; and what the published ones come to."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.configs import Configs
from benchmarks.mlperf.admission import BrokenRule, broken_rules
from benchmarks.mlperf.definitions import read_definition
from benchmarks.mlperf.package import reference_points
from benchmarks.mlperf.submission import configuration_of, read_submission

CONFIGS = Configs()
LORA, EIGHT, FLUX = "llama2_70b_lora", "llama31_8b", "flux1"
TABLE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("configurations.yml").read_text())
PUBLISHED, GUIDE = TABLE["published"], TABLE["guide"]
REFUSES = {"refused": (True, True), "refused in closed": (True, False)}  # closed, open


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
    assert [[one.refuses(division) for one in bad.values()] for division in ("closed", "open")] == [
        [True, True], [False, False],
    ]  # fmt: skip
    assert "a global batch of 1 is outside" in bad["reference points"].what


@pytest.mark.parametrize("row", TABLE["broken"], ids=lambda row: f"{row['benchmark']}-{row['change']}")
def test_a_broken_rule_is_refused_where_it_must_be(row: dict[str, Any]) -> None:
    one = found(row["change"], row["benchmark"])[row["rule"]]
    assert (one.refuses("closed"), one.refuses("open")) == REFUSES[row["how"]]
    assert row.get("arithmetic", "") in one.arithmetic and one.cure
