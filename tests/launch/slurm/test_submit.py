"""From a benchmark to the queue: what a job inherits, what a refusal leaves, what is written down when."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, JobOptions
from jax_backend import BACKEND
from launch.environments import venvs
from launch.running.runners import Job
from launch.slurm import submit

JOB = Job(typed={}, hang_timeout=None, telemetry=True)
TOKEN = "hf_a-token-that-must-not-be-written"


class FakeSlurm:
    """Takes a job, or answers with an error; remembers what was in the folder by then."""

    def __init__(self, answer: "str | Exception") -> None:
        self.answer = answer
        self.submitted: dict[str, object] = {}
        self.environment: Mapping[str, str] = {}

    def submit(self, script: Path, environment: Mapping[str, str]) -> str:
        self.submitted = json.loads((script.parent / "job.json").read_text())
        self.environment = environment
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def benchmark(site_configs: Configs, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    monkeypatch.setattr(venvs, "ensure", lambda _spec: Path("/made/bin/python"))
    monkeypatch.setattr(venvs, "origin", lambda spec, _python: {"name": spec.name})
    return resolve(Request(backend="jax", model="llama2_tiny", site="here", nodes=4), site_configs, BACKEND)


def put(benchmark: Benchmark, folder: Path, slurm: FakeSlurm) -> None:
    submit.submit(benchmark, BACKEND, folder, "a_run", JobOptions(), slurm, JOB)  # type: ignore[arg-type]


def test_a_job_is_written_down_before_and_after(benchmark: Benchmark, tmp_path: Path) -> None:
    slurm = FakeSlurm("17")
    put(benchmark, tmp_path, slurm)
    assert slurm.submitted["job_id"] is None
    assert json.loads((tmp_path / "a_run/job.json").read_text())["job_id"] == "17"
    assert "#SBATCH --nodes=4" in (tmp_path / "a_run/job.sbatch").read_text()


def test_a_job_inherits_its_token_and_nothing_that_steers(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steering = {"SBATCH_NODELIST": "n9", "SLURM_NTASKS": "3", "SRUN_CONTAINER": "x", "XLA_FLAGS": "--y", "JAX_Z": "1"}
    for name, value in {**steering, "HF_TOKEN": TOKEN, "MY_OWN": "kept"}.items():
        monkeypatch.setenv(name, value)
    slurm = FakeSlurm("17")
    put(benchmark, tmp_path, slurm)
    assert (slurm.environment["HF_TOKEN"], slurm.environment["MY_OWN"]) == (TOKEN, "kept")
    assert not steering.keys() & slurm.environment.keys()
    for path in (tmp_path / "a_run").iterdir():
        assert TOKEN not in path.read_text(), path
    assert "SBATCH_NODELIST" in (tmp_path / "a_run/provenance.json").read_text()


def test_what_slurm_refuses_leaves_no_folder(benchmark: Benchmark, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no such account"):
        put(benchmark, tmp_path, FakeSlurm(RequestError("no such account")))
    assert not (tmp_path / "a_run").exists()


def test_where_slurm_may_have_taken_it_the_folder_stays(benchmark: Benchmark, tmp_path: Path) -> None:
    with pytest.raises(RunError):
        put(benchmark, tmp_path, FakeSlurm(RunError("it does not answer")))
    assert (tmp_path / "a_run/job.sbatch").exists()


def test_a_secret_in_the_script_is_refused_and_leaves_no_folder(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_PASSWORD", "correct-horse")
    slurm = FakeSlurm("17")
    with pytest.raises(RequestError) as refusal:
        options = JobOptions(comment="it is correct-horse")
        submit.submit(benchmark, BACKEND, tmp_path, "a_run", options, slurm, JOB)  # type: ignore[arg-type]
    assert "correct-horse" not in str(refusal.value)
    assert not (tmp_path / "a_run").exists()
    assert slurm.submitted == {}
