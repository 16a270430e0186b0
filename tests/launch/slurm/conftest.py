"""A cluster of CPUs, and a run that was submitted to it."""

from pathlib import Path

import pytest

from benchmarks.configs import Configs
from benchmarks.job_record import SUBMITTED, JobSubmission
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.runfolder import BENCHMARK, PLAN, PROVENANCE, RunFolder
from jax_backend import BACKEND

SUBMITTED_AT = 1_000_000.0


@pytest.fixture
def site_configs(tmp_path: Path) -> Configs:
    """With a site `here`."""
    sites = tmp_path / "sites"
    sites.mkdir()
    text = (Configs().root / "sites/example_venv.yml").read_text()
    (sites / "here.yml").write_text(text.replace("example_venv", "here").replace("h100", "cpu"))
    return Configs(own_sites=sites)


@pytest.fixture
def run(tmp_path: Path, site_configs: Configs) -> RunFolder:
    benchmark = resolve(Request(backend="jax", model="llama2_tiny", steps=3, site="here"), site_configs, BACKEND)
    folder = RunFolder.create(tmp_path / "runs", "run-1")
    folder.write(BENCHMARK, benchmark)
    folder.write(PLAN, BACKEND.plan(benchmark))
    folder.write(PROVENANCE, {"run_id": "run-1", "notes": []})
    submitted = JobSubmission(site="here", job_id="7", submitted=SUBMITTED_AT, command=["run.py"], configuration=None)
    folder.write(SUBMITTED, submitted)
    return folder
