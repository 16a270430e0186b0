"""The rules of a small copy: the package's own, with nothing but the copy's values in them."""

import difflib
from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark, Target
from benchmarks.mlperf.derived import derive_benchmark
from launch.mlperf import checkers
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


CASES = [(name, rules) for name in ("llama2_70b_lora", "llama31_8b") for rules in CONFIGS.mlperf(name).rulesets]


@pytest.mark.parametrize(("name", "ruleset"), CASES)
def test_the_packages_checker_judges_by_the_derived_rules(name: str, ruleset: str, tmp_path: Path) -> None:
    copy = small(name)
    rules = derived_rules(copy, ruleset, CONFIGS, tmp_path / "rules")
    run = made_run(name)
    meets = [replace(one, value=5.4) for one in run.evaluations]
    fields = {"benchmark": copy, "optimizer": copy.optimizer, "sequence_length": 64, "max_steps": 200}
    run = replace(run, **fields, eval_samples=32, evaluations=meets)
    said = checkers.compliance(write(run, tmp_path / "meets.txt"), ruleset, rules)
    assert said.passed, said.complaints
    misses = replace(run, evaluations=[replace(one, value=5.6) for one in meets])
    said = checkers.compliance(write(misses, tmp_path / "misses.txt"), ruleset, rules)
    assert not said.passed and any("5.5" in one for one in said.complaints), said.complaints
    assert not checkers.compliance(tmp_path / "meets.txt", ruleset).passed  # by the real rules it is none


def test_nothing_but_the_values_that_differ_is_changed() -> None:
    real = CONFIGS.mlperf("llama31_8b")
    text = (folder() / "compliance_checker" / "training_6.1.0" / "closed_llama31_8b.yaml").read_text()
    derived = derive_benchmark(text, real, small("llama31_8b"))
    changes = [line for line in difflib.ndiff(text.splitlines(), derived.splitlines()) if line[0] in "+-"]
    assert [line[2:].strip() for line in changes if line[0] == "+"] == [
        """CHECK: " v['value'] == 64 \"""",
        """CHECK: " v['value'] == 200 - s['opt_learning_rate_warmup_steps'] \"""",
        """CHECK: " v['value'] == 32 \"""",
        """ATLEAST_ONE_CHECK: "(v['value'] <= 5.5) and v['value'] > 0.0\"""",
        """CHECK: " v['value'] == 200 \"""",
    ]
    assert len(changes) == 10


def test_the_real_benchmark_derives_to_itself() -> None:
    real = CONFIGS.mlperf("llama2_70b_lora")
    text = (folder() / "compliance_checker" / "training_5.1.0" / "closed_llama2_70b_lora.yaml").read_text()
    assert derive_benchmark(text, real, real) == text


def test_a_rule_that_compares_with_something_else_is_refused() -> None:
    real = CONFIGS.mlperf("llama31_8b")
    text = "- KEY:\n    NAME: eval_samples\n    CHECK: \" v['value'] == 2048 \"\n"
    with pytest.raises(RequestError, match="does not compare it with 1024"):
        derive_benchmark(text, real, small("llama31_8b"))


def test_a_ruleset_without_the_benchmark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is not in ruleset") as refused:
        derived_rules(small("llama31_8b"), "5.0.0", CONFIGS, tmp_path)
    assert "5.1.0" in refused.value.why
