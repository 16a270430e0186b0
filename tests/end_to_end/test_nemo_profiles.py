"""Real NeMo with --profile=nsys, under a program that stands in for nsys: what the run says, where its report is."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.runs import LIMIT_SECONDS, LLAMA3, NEMO, REPOSITORY, Run, Start, finish, verify

pytestmark = pytest.mark.slow

STAND_IN = f"{REPOSITORY / 'tests' / 'stand_ins'}{os.pathsep}{os.environ['PATH']}"
PROFILED = ("--profile=nsys", "--steps=16", "--profile_start_step=6", "--profile_stop_step=8")
DISTURBED = [5, 6, 7, 8, 9]
TWO = ("--gpus=2", "--profile_ranks=1")


def profiled(start: Start, output_dir: Path, *flags: str) -> Run:
    return finish(start(output_dir, NEMO, LLAMA3, *PROFILED, *flags, PATH=STAND_IN), output_dir)


@pytest.fixture(scope="module")
def pretrained(start_nemo: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return profiled(start_nemo, tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def two_ranks(start_nemo: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return profiled(start_nemo, tmp_path_factory.mktemp("results"), "--task=lora", *TWO)


def reports(run: Run) -> dict[str, Any]:
    found = (run.folder / "attempt-1/perf").glob("*.nsys-rep")
    return {path.name: json.loads(path.read_text()) for path in found}


def test_a_recorded_run_is_valid_and_says_that_it_may_not_be_compared(pretrained: Run) -> None:
    assert pretrained.code == 0, pretrained.err
    assert (pretrained.result["status"], pretrained.result["reasons"]) == ("valid", [])
    (reason,) = pretrained.result["not_comparable"]
    assert reason.startswith("profiled (--profile=nsys)")
    assert verify(str(pretrained.folder)).returncode == 0


def test_the_recorded_steps_and_those_next_to_them_are_left_out(pretrained: Run, two_ranks: Run) -> None:
    for run in (pretrained, two_ranks):
        assert run.result["window"]["excluded"]["profiler"] == len(DISTURBED)
        for rank in {step["rank"] for step in run.steps}:
            marks = {step["step"]: step["excluded_because"] for step in run.steps if step["rank"] == rank}
            assert len(marks) == 16
            assert [step for step, why in marks.items() if why == "profiler"] == DISTURBED
    assert {step["rank"] for step in two_ranks.steps} == {0, 1}


def test_the_report_lies_in_the_phases_folder_under_the_recipes_name(pretrained: Run) -> None:
    ((name, report),) = reports(pretrained).items()
    assert name == "llama3-tiny-fp32_1g_local_0_0.nsys-rep"
    assert report["exit_code"] == 0
    assert "worker.py" in " ".join(report["program"])


def test_only_the_named_rank_runs_under_the_profiler(two_ranks: Run) -> None:
    assert two_ranks.code == 0, two_ranks.err
    assert list(reports(two_ranks)) == ["profile_local_node0_rank1.nsys-rep"]


def test_a_cpu_records_the_whole_run_and_the_result_says_so(pretrained: Run, two_ranks: Run) -> None:
    for run in (pretrained, two_ranks):
        (report,) = reports(run).values()
        assert "--capture-range" not in report["options"]
        said = [note for note in run.result["notes"] if "nsys" in note]
        assert said == ["profile: a CPU makes no CUDA calls; nsys recorded the whole run"]


def test_without_nsys_it_is_refused_before_anything_starts(start_nemo: Start, tmp_path: Path) -> None:
    process = start_nemo(tmp_path / "results", NEMO, LLAMA3, *PROFILED, PATH="/usr/bin:/bin")
    _, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 2, err
    assert "this machine has no program 'nsys'" in err
    assert not (tmp_path / "results").exists()
