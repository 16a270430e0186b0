"""MLLOGs of real runs of the small copy, of both backends on a CPU: the package's checker, by derived rules.

`logs/` holds what launch/run.py --task=mlperf wrote on 2026-11-22, and the definition that it was written by.
"""

from pathlib import Path

import pytest

from benchmarks.configs import Configs, read_yaml
from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.story import tell
from launch.mlperf import package
from launch.mlperf.derived_rules import derived_rules
from launch.mlperf.reading import runs_in

REAL = Configs().mlperf("llama31_8b")
LOGS = Path(__file__).parent / "logs"
SMALL = read_yaml(LOGS / "llama31_8b_tiny.yml", MlperfBenchmark)
BACKENDS = ("jax", "nemo")


def log(backend: str) -> Path:
    return LOGS / f"llama31_8b_tiny-{backend}.txt"


@pytest.mark.parametrize("ruleset", SMALL.rulesets)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_real_run_passes_the_compliance_checker(backend: str, ruleset: str, tmp_path: Path) -> None:
    rules = derived_rules(SMALL, REAL, ruleset, tmp_path)
    said = package.compliance(log(backend), ruleset, rules)
    assert said.passed and said.complaints == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_real_run_is_taken_apart(backend: str) -> None:
    (run,) = runs_in(log(backend))
    told = tell(run, SMALL)
    assert (told.status, told.benchmark, told.reached) == ("success", "llama31_8b_tiny", True)
    assert [finding.what for finding in told.findings if finding.level == "error"] == []
    parts = told.apart
    assert parts is not None and parts.divided and parts.steps is not None
    assert len(run.steps) == parts.steps == parts.evaluations * 24
    total = parts.training_seconds + parts.evaluation_seconds + parts.checkpoint_seconds + parts.other_seconds
    assert total == pytest.approx(parts.total_seconds)
    assert parts.idle_seconds is not None and parts.idle_seconds < parts.training_seconds
