"""What is refused of a submission, rule by rule, each with its arithmetic."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from benchmarks.configs import Configs
from benchmarks.mlperf.admission import BrokenRule, broken_rules, rules_of
from benchmarks.request.resolve import Request, resolve
from nemo_backend import BACKEND

CONFIGS = Configs()
LORA = Request(
    backend="nemo",
    task="mlperf",
    model="llama2_70b_lora",
    recipe="mlperf_llama2_70b_lora_h100",
    site="example_pyxis",
    data="/lustre/mlperf",
)
RECIPES = {
    "lora": {},
    "guide": {"recipe": "mlperf_llama2_70b_lora_h100_guide"},
    "8b": {"model": "llama31_8b", "recipe": "mlperf_llama31_8b_blackwell", "site": "example_gb200"},
}
TABLE: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("configurations.yml").read_text())
REFUSES = {"refused": (True, True), "refused in closed": (True, False)}  # closed, open


def rules_broken_by(of: str = "lora", **changes: Any) -> dict[str, BrokenRule]:
    asked = resolve(msgspec.structs.replace(LORA, **RECIPES[of], **changes), CONFIGS, BACKEND)
    return {one.rule: one for one in broken_rules(asked, *rules_of(asked, CONFIGS))}


@pytest.mark.parametrize("accumulation", ["4", "6", "16"])  # 12: between points; 32: a point that is pruned
def test_a_batch_at_or_between_the_reference_points_breaks_no_rule(accumulation: str) -> None:
    assert rules_broken_by(settings={"gradient_accumulation": accumulation}) == {}


def test_the_guides_configuration_is_outside_the_closed_division() -> None:
    bad = rules_broken_by("guide")
    assert bad.keys() == {"evaluation cadence", "reference points"}
    assert [[one.refuses(division) for one in bad.values()] for division in ("closed", "open")] == [
        [True, True], [False, False],
    ]  # fmt: skip
    assert "a global batch of 1 is outside" in bad["reference points"].what


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_broken_rule_is_refused_where_it_must_be(row: dict[str, Any]) -> None:
    one = rules_broken_by(**{name: row[name] for name in ("of", "settings", "steps") if name in row})[row["rule"]]
    assert (one.refuses("closed"), one.refuses("open")) == REFUSES[row["how"]]
    assert row.get("arithmetic", "") in one.arithmetic and one.cure
