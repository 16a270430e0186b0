"""The MLLOG that is written passes the package's own compliance checker."""

import json
from pathlib import Path

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from launch.mlperf.emit import write
from tests.benchmarks.mlperf.made_runs import START_MS, made_run, replace
from tests.launch.mlperf.asked import complied

CONFIGS = Configs()
NAMES = ("llama2_70b_lora", "llama31_8b", "flux1")
CASES = [(name, rules) for name in NAMES for rules in CONFIGS.mlperf(name).rulesets]


@pytest.mark.parametrize(("name", "ruleset"), CASES)
def test_the_compliance_checker_says_success_without_a_warning(name: str, ruleset: str, tmp_path: Path) -> None:
    path = write(made_run(name), tmp_path / "result_0.txt")
    checked = complied(path, ruleset)
    assert checked.passed and checked.complaints == []


def test_a_loss_above_the_target_fails_the_checker(tmp_path: Path) -> None:
    run = made_run()
    high = [replace(one, loss=1.5) for one in run.evaluations]
    checked = complied(write(replace(run, evaluations=high), tmp_path / "a.txt"), "6.1.0")
    assert not checked.passed and any("eval_accuracy" in one for one in checked.complaints)


def test_the_times_are_the_runs_and_no_path_of_this_machine_is_in_the_log(tmp_path: Path) -> None:
    path = write(made_run(), tmp_path / "a.txt")
    text = path.read_text()
    first = json.loads(text.splitlines()[0].removeprefix(":::MLLOG "))
    assert first["time_ms"] == START_MS
    assert first["metadata"]["file"] == "launch/mlperf/emit.py"
    assert str(Path(__file__).parents[3]) not in text and str(tmp_path) not in text
    assert [found.name for found in tmp_path.iterdir()] == ["a.txt"]


def test_a_secret_is_refused_and_not_repeated(tmp_path: Path) -> None:
    secret = "hf_" + "abcdefghijklmnopqrstuvwxyz012345"
    with pytest.raises(RequestError, match="submission_org looks like a secret") as refused:
        write(made_run(said={"submission_org": secret}), tmp_path / "a.txt")
    assert secret not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
