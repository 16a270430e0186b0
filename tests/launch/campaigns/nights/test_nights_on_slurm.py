"""A suite in a real queue: as many jobs at once as the site allows, re-runs on other nodes, and a launcher killed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runs.runfolder import RunFolder
from tests.end_to_end.clusters import ClusterOfTests, until
from tests.launch.campaigns.nights.earlier_nights import copy_to_earlier_days
from tests.launch.campaigns.nights.toy_suite import SHORT, cell, judged

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="Slurm is not installed"),
]

SUITE = """\
name: naps
title: Naps
matrix:
  - {backend: toy, model: llama2_tiny, steps: 8, label: short, settings: {nap_seconds: 0.05}}
site: dev
rerun_budget: 3
source: a test
date: "2026-11-22"
"""
EARLIER = [(1 + part / 400, 1.0) for part in range(-4, 5)]


@pytest.fixture(scope="module")
def cluster(cluster: ClusterOfTests) -> ClusterOfTests:
    suites = cluster.folder / "configs/suites"
    if suites.is_symlink():
        suites.unlink()
    suites.mkdir(exist_ok=True)
    (suites / "naps.yml").write_text(SUITE)
    return cluster


def flags(cluster: ClusterOfTests) -> list[str]:
    return ["--suite=naps", f"--output_dir={cluster.folder / 'results'}"]


def reports(cluster: ClusterOfTests) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(cluster.folder.glob("results/nights/naps/2*.json"))]


def nodes(cluster: ClusterOfTests, run_id: str) -> str:
    result = json.loads((cluster.folder / "results" / run_id / "result.json").read_text())
    return str(result["attempts"][-1]["nodes"])


def test_a_launcher_that_was_killed_goes_on_with_the_job_it_has_submitted(cluster: ClusterOfTests) -> None:
    process = cluster.start("nightly.py", *flags(cluster))
    until(lambda: list(Path(cluster.folder / "results").glob("2*/job.json")), "a job is submitted")
    process.kill()
    process.communicate()
    done = cluster.call("nightly.py", *flags(cluster))
    assert done.returncode == 0, done.stderr
    assert "resuming night" in done.stderr
    (report,) = reports(cluster)
    assert report["site"] == "dev"
    assert cell(report, SHORT)["status"] == "valid"
    runs = [path for path in (cluster.folder / "results").glob("2*") if path.is_dir()]
    submitted = [path for path in runs if RunFolder(path).job_ids()]
    assert len(submitted) in (1, 2)  # killed before Slurm had answered, its run is made again


def test_re_runs_are_on_other_nodes_than_the_first_run(cluster: ClusterOfTests) -> None:
    copy_to_earlier_days(cluster.folder / "results", "naps", EARLIER)
    done = cluster.call("nightly.py", *flags(cluster), "--inject_slowdown=0.5")
    assert done.returncode == 3, done.stdout + done.stderr
    report = reports(cluster)[-1]
    assert judged(report, SHORT)["verdict"] == "worse"
    found = cell(report, SHORT)
    assert len(found["rerun_ids"]) == 3
    first = nodes(cluster, found["run_id"])
    assert first not in {nodes(cluster, run_id) for run_id in found["rerun_ids"]}
    assert any(note.endswith("nodes of both: none") for note in found["notes"])
