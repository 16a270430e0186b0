"""The rules for a small copy: the package's own, with nothing but the copy's values in them."""

import difflib
from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark, Target
from launch.mlperf import package
from launch.mlperf.derived_rules import derived_rules
from launch.mlperf.emit import write
from launch.mlperf.package import folder
from tests.benchmarks.mlperf.made_runs import made_run

CONFIGS = Configs()
replace = msgspec.structs.replace


def small(name: str) -> MlperfBenchmark:
    real = CONFIGS.mlperf(name)
    optimizer = replace(real.optimizer, decay_and_warmup_steps=200 if real.optimizer.decay_and_warmup_steps else None)
    return replace(
        real,
        name=f"{name}_small",
        stands_for=name,
        target=Target(metric="eval_loss", at_most=5.5),
        sequence_length=64,
        eval_samples=32,
        max_steps=200,
        optimizer=optimizer,
    )


def rules_of(name: str, ruleset: str) -> str:
    return (folder() / "compliance_checker" / f"training_{ruleset}" / f"closed_{name}.yaml").read_text()


CASES = [(name, rules) for name in ("llama2_70b_lora", "llama31_8b") for rules in CONFIGS.mlperf(name).rulesets]


@pytest.mark.parametrize(("name", "ruleset"), CASES)
def test_the_packages_checker_judges_by_the_derived_rules(name: str, ruleset: str, tmp_path: Path) -> None:
    copy = small(name)
    rules = derived_rules(copy, CONFIGS.mlperf(name), ruleset, tmp_path / "rules")
    run = made_run(name)
    meets = [replace(one, value=5.4) for one in run.evaluations]
    fields = {"benchmark": copy, "optimizer": copy.optimizer, "sequence_length": 64, "max_steps": 200}
    run = replace(run, **fields, eval_samples=32, evaluations=meets)
    said = package.compliance(write(run, tmp_path / "meets.txt"), ruleset, rules)
    assert said.passed, said.complaints
    misses = replace(run, evaluations=[replace(one, value=5.6) for one in meets])
    said = package.compliance(write(misses, tmp_path / "misses.txt"), ruleset, rules)
    assert not said.passed and any("5.5" in one for one in said.complaints), said.complaints
    assert not package.compliance(tmp_path / "meets.txt", ruleset).passed  # by the real rules it is none


def test_nothing_but_the_values_that_differ_is_changed(tmp_path: Path) -> None:
    text, real = rules_of("llama31_8b", "6.1.0"), CONFIGS.mlperf("llama31_8b")
    place = derived_rules(small("llama31_8b"), real, "6.1.0", tmp_path).parent
    lines = difflib.ndiff(text.splitlines(), (place / "closed_llama31_8b_small.yaml").read_text().splitlines())
    assert [line[2:].strip() for line in lines if line[0] == "+"] == [
        """CHECK: " v['value'] == 64 \"""",
        """CHECK: " v['value'] == 200 - s['opt_learning_rate_warmup_steps'] \"""",
        """CHECK: " v['value'] == 32 \"""",
        """ATLEAST_ONE_CHECK: "(v['value'] <= 5.5) and v['value'] > 0.0\"""",
        """CHECK: " v['value'] == 200 \"""",
    ]


def test_a_rule_that_compares_with_something_else_is_refused(tmp_path: Path) -> None:
    real = replace(CONFIGS.mlperf("llama31_8b"), eval_samples=2048)
    with pytest.raises(RequestError, match="the rule for eval_samples cannot be derived"):
        derived_rules(small("llama31_8b"), real, "6.1.0", tmp_path)


@pytest.mark.parametrize("name", [name for name in CONFIGS.names("mlperf") if CONFIGS.mlperf(name).stands_for])
def test_rules_can_be_derived_for_every_small_copy(name: str, tmp_path: Path) -> None:
    copy = CONFIGS.mlperf(name)
    real = CONFIGS.mlperf(str(copy.stands_for))
    assert set(copy.rulesets) <= set(real.rulesets)
    for ruleset in copy.rulesets:
        rules = derived_rules(copy, real, ruleset, tmp_path / ruleset)
        text = (rules.parent / f"closed_{name}.yaml").read_text()
        assert f"v['value'] <= {copy.target.at_most}" in text
