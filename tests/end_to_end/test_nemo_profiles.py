"""Real NeMo with --profile=nsys, under a program that stands in for nsys: what the run says, where its report is."""

import json
import os
from typing import Any

import pytest

from tests.end_to_end.runs import LLAMA3, NEMO, REPOSITORY, Run, Start, finish, verify

pytestmark = pytest.mark.slow

STAND_IN = f"{REPOSITORY / 'tests' / 'stand_ins'}{os.pathsep}{os.environ['PATH']}"
PROFILED = ("--profile=nsys", "--steps=16", "--profile_start_step=6", "--profile_stop_step=8")
DISTURBED = [5, 6, 7, 8, 9]


@pytest.fixture(scope="module")
def profiled(start_nemo: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two processes, of which the second one runs under nsys."""
    flags = (NEMO, LLAMA3, *PROFILED, "--gpus=2", "--profile_ranks=1")
    output_dir = tmp_path_factory.mktemp("results")
    return finish(start_nemo(output_dir, *flags, PATH=STAND_IN), output_dir)


def reports(run: Run) -> dict[str, Any]:
    found = (run.folder / "attempt-1/perf").glob("*.nsys-rep")
    return {path.name: json.loads(path.read_text()) for path in found}


def test_a_recorded_run_is_valid_and_says_that_it_may_not_be_compared(profiled: Run) -> None:
    assert profiled.code == 0, profiled.err
    assert (profiled.result["status"], profiled.result["reasons"]) == ("valid", [])
    (reason,) = profiled.result["not_comparable"]
    assert reason.startswith("profiled (--profile=nsys)")
    assert verify(str(profiled.folder)).returncode == 0


def test_the_recorded_steps_and_those_next_to_them_are_left_out(profiled: Run) -> None:
    assert profiled.result["window"]["excluded"]["profiler"] == len(DISTURBED)
    for rank in (0, 1):
        marks = {step["step"]: step["excluded_because"] for step in profiled.steps if step["rank"] == rank}
        assert len(marks) == 16
        assert [step for step, why in marks.items() if why == "profiler"] == DISTURBED


def test_only_the_named_rank_runs_under_the_profiler(profiled: Run) -> None:
    ((name, report),) = reports(profiled).items()
    assert name == "llama3-tiny-fp32_2g_local_0_1.nsys-rep"
    assert report["exit_code"] == 0
    assert "worker.py" in " ".join(report["program"])


def test_a_cpu_records_the_whole_run_and_the_result_says_so(profiled: Run) -> None:
    (report,) = reports(profiled).values()
    assert "--capture-range" not in report["options"]
    told = [note for note in profiled.result["notes"] if "nsys" in note]
    assert told == ["profile: a CPU makes no CUDA calls; nsys recorded the whole run"]
