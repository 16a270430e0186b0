"""Runs of submissions refused by MLPerf's rules, and the jobs that make their data."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.submission import read_submission
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, JobOptions
from launch.mlperf import admit
from nemo_backend import BACKEND
from tests import forked

REPOSITORY = Path(__file__).resolve().parents[3]
CONFIGS = Configs()


def guide(**wanted: object) -> Benchmark:
    request = Request(
        backend="nemo",
        task="mlperf",
        model="llama2_70b_lora",
        recipe="mlperf_llama2_70b_lora_h100_guide",
        site="example_pyxis",
        data="/lustre/mlperf",
    )
    return resolve(msgspec.structs.replace(request, **wanted), CONFIGS, BACKEND)


def test_a_run_is_held_against_the_same_rules() -> None:
    notes = admit.admit(guide(), CONFIGS, JobOptions(time="90"))
    assert len(notes) == 2
    assert "a global batch of 1" in notes[1]
    with pytest.raises(RequestError) as closed:
        admit.admit(guide(settings={"MLPERF_DIVISION": "closed"}), CONFIGS, JobOptions(time="90"))
    assert "2. a global batch of 1" in closed.value.what
    with pytest.raises(RequestError, match="is after the last step") as late:
        admit.admit(guide(steps=100, settings={"VAL_CHECK_INTERVAL": "1152"}), CONFIGS, JobOptions(time="90"))
    assert "(2 + 1) x 1152 = 3456 > MAX_STEPS 100" in late.value.what
    with pytest.raises(RequestError, match="60 minutes is too short"):
        admit.admit(guide(), CONFIGS, JobOptions(time="1:00:00"))
    with pytest.raises(RequestError, match="LIMIT_VAL_BATCHES"):
        guide(settings={"env.LIMIT_VAL_BATCHES": "0.1"})


def test_a_shared_node_is_left_as_it_is() -> None:
    shared = JobOptions(time="90", exclusive=False)
    with pytest.raises(RequestError, match="clears the caches"):
        admit.admit(guide(), CONFIGS, shared)
    quiet = guide(settings={"CLEAR_CACHES": "false"})
    assert admit.admit(quiet, CONFIGS, shared)


def test_a_submissions_own_time_is_the_jobs_unless_another_is_typed() -> None:
    assert admit.with_its_time(guide(), JobOptions(time="1:00:00"), typed=False).time == "90"
    assert admit.with_its_time(guide(), JobOptions(time="2:00:00"), typed=True).time == "2:00:00"


@pytest.mark.parametrize("name", ["llama2_70b_lora", "llama31_8b", "flux1"])
def test_the_job_that_makes_the_data_shows_every_step(name: str, tmp_path: Path) -> None:
    flags = ["--site=example_pyxis", f"--model={name}", "--task=mlperf", f"--out={tmp_path}", "--dry_run"]
    done = forked.run(REPOSITORY / "launch/setup.py", *flags)
    assert done.returncode == 0, done.stderr
    subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True, timeout=60)
    for step in read_submission(CONFIGS, name).steps:
        assert f'"$folder/{step.name}.end"' in done.stdout
    assert list(tmp_path.iterdir()) == []
