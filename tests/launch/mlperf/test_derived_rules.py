"""The rules for a small copy: the package's own, with nothing but the copy's values in them; and real runs of the
small copy by them. `logs/` holds what launch/run.py --task=mlperf wrote on 2026-11-22, and the definition then.
"""

import difflib
from pathlib import Path

import pytest

from benchmarks.configs import Configs, read_yaml
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark, Target
from benchmarks.mlperf.story import tell
from launch.mlperf import package
from launch.mlperf.derived_rules import derived_rules
from launch.mlperf.emit import write
from launch.mlperf.reading import runs_in
from tests.benchmarks.mlperf.made_runs import made_run, replace
from tests.launch.mlperf.asked import complied

CONFIGS = Configs()
LOGS = Path(__file__).parent / "logs"
SMALL = read_yaml(LOGS / "llama31_8b_tiny.yml", MlperfBenchmark)


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


@pytest.mark.parametrize(
    ("name", "ruleset"), [("llama2_70b_lora", "5.0.0"), ("llama2_70b_lora", "6.1.0"), ("llama31_8b", "6.1.0")]
)
def test_the_packages_checker_judges_by_the_derived_rules(name: str, ruleset: str, tmp_path: Path) -> None:
    copy = small(name)
    rules = derived_rules(copy, CONFIGS.mlperf(name), ruleset, tmp_path / "rules")
    run = made_run(name, rules=copy)
    said = complied(write(run, tmp_path / "meets.txt"), ruleset, rules)
    assert said.passed, said.complaints
    misses = replace(run, evaluations=[replace(one, loss=5.6) for one in run.evaluations])
    said = complied(write(misses, tmp_path / "misses.txt"), ruleset, rules)
    assert not said.passed and any("5.5" in one for one in said.complaints), said.complaints
    assert not complied(tmp_path / "meets.txt", ruleset).passed  # by the real rules it is none


def test_nothing_but_the_values_that_differ_is_changed(tmp_path: Path) -> None:
    source = package.folder() / "compliance_checker" / "training_6.1.0" / "closed_llama31_8b.yaml"
    place = derived_rules(small("llama31_8b"), CONFIGS.mlperf("llama31_8b"), "6.1.0", tmp_path).parent
    derived = (place / "closed_llama31_8b_small.yaml").read_text()
    lines = difflib.ndiff(source.read_text().splitlines(), derived.splitlines())
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


@pytest.mark.parametrize("backend", ["jax", "nemo"])
def test_a_real_run_passes_and_is_taken_apart(backend: str, tmp_path: Path) -> None:
    log, ruleset = LOGS / f"llama31_8b_tiny-{backend}.txt", SMALL.rulesets[-1]
    said = complied(log, ruleset, derived_rules(SMALL, CONFIGS.mlperf("llama31_8b"), ruleset, tmp_path))
    assert said.passed and said.complaints == []
    (run,) = runs_in(log)
    told = tell(run, SMALL)
    assert (told.status, told.benchmark, told.reached) == ("success", "llama31_8b_tiny", True)
    assert [finding.what for finding in told.findings if finding.level == "error"] == []
    parts = told.apart
    assert parts is not None and parts.divided and parts.steps is not None
    assert len(run.steps) == parts.steps == parts.evaluations * 24
    total = parts.training_seconds + parts.evaluation_seconds + parts.checkpoint_seconds + parts.other_seconds
    assert total == pytest.approx(parts.total_seconds)
    assert parts.idle_seconds is not None and parts.idle_seconds < parts.training_seconds
