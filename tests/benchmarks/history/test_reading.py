"""A run folder becomes a row: what is taken from which file, and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.errors import RequestError
from benchmarks.runs.finished_run import FinishedRun, changes, read_finished_run
from benchmarks.runs.runfolder import BENCHMARK, PROVENANCE, RESULT, RunFolder
from benchmarks.values import to_builtins
from tests.benchmarks.history.made_runs import ENVIRONMENT, put, quick_run

TABLES = yaml.safe_load(Path(__file__).with_name("reading.yml").read_text())

NIGHTLY = {"suite": "smoke", "cell": "jax", "night": "20261122T020000Z", "role": "rerun"}


def entry_of(path: Path) -> FinishedRun:
    return read_finished_run(RunFolder(path), path.name)


def changed(path: Path, name: str, change: dict[str, Any]) -> None:
    put(path / name, json.dumps(json.loads((path / name).read_bytes()) | change))


def test_a_run_without_a_result_is_running(tmp_path: Path) -> None:
    path = quick_run(tmp_path, "20261122T034511Z-x", nightly=NIGHTLY)
    (path / RESULT).unlink()
    entry = entry_of(path)
    assert (entry.status, entry.metrics.seconds_per_step, entry.labels.suite) == ("running", None, "smoke")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (RESULT, '{"schema_version": 1', "result.json cannot be read"),
        (RESULT, "", "result.json cannot be read"),
        (RESULT, "[1, 2]", "result.json cannot be read"),
        (RESULT, "\x80", "result.json cannot be read"),
        (BENCHMARK, "null", "benchmark.json cannot be read"),
        (BENCHMARK, None, "benchmark.json is missing"),
        (PROVENANCE, '{"labels": 3}', "provenance.json cannot be read"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    path = quick_run(tmp_path, "one")
    (path / name).unlink()
    if text is not None:
        (path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(RequestError) as caught:
        entry_of(path)
    assert message in caught.value.what
    assert str(path) in caught.value.where


# --- identity -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "other"), TABLES["other_work"])
def test_other_work_is_another_benchmark_and_nothing_else_is(
    tmp_path: Path, change: dict[str, Any], other: bool
) -> None:
    one, two = quick_run(tmp_path, "one"), quick_run(tmp_path, "two")
    changed(two, BENCHMARK, change)
    assert (entry_of(one).origin.identity["benchmark"] != entry_of(two).origin.identity["benchmark"]) == other


def test_another_lock_file_image_or_variable_of_the_site_is_another_environment(tmp_path: Path) -> None:
    one, two = quick_run(tmp_path, "one"), quick_run(tmp_path, "two")
    changed(two, PROVENANCE, {"environment": ENVIRONMENT | {"lock_sha256": "1a2b3c4" + "0" * 57}})
    before, after = entry_of(one), entry_of(two)
    assert changes(before, after) == ["environment: requirements.lock e4c92fe -> requirements.lock 1a2b3c4"]
    image = {"name": "nemo", "image": "nvcr.io/nvidia/nemo:25.04", "file_bytes": "7", "file_written": "2026-01-01"}
    changed(two, PROVENANCE, {"environment": image})
    first = entry_of(two)
    assert "nemo:25.04 (7 bytes of 2026-01-01)" in first.origin.identity_text["environment"]
    changed(two, PROVENANCE, {"environment": image | {"file_bytes": "8"}})
    assert entry_of(two).origin.identity["environment"] != first.origin.identity["environment"]
    known = image | {"image_digest": "ends-sha256:0123456789ab" + "0" * 52}
    changed(two, PROVENANCE, {"environment": known})
    first = entry_of(two)
    assert first.origin.identity_text["environment"].startswith("nvcr.io/nvidia/nemo:25.04 (0123456")
    changed(two, PROVENANCE, {"environment": known | {"file_written": "2026-02-02"}})  # the same file, copied
    assert entry_of(two).origin.identity["environment"] == first.origin.identity["environment"]
    changed(two, PROVENANCE, {"environment": known | {"image_digest": "ends-sha256:" + "f" * 64}})
    assert entry_of(two).origin.identity["environment"] != first.origin.identity["environment"]
    site = to_builtins(RunFolder(one).benchmark().site) | {"environment": {"NCCL_IB_HCA": "mlx5"}}
    changed(one, BENCHMARK, {"site": site})
    assert entry_of(one).origin.identity["environment"] != before.origin.identity["environment"]
    assert entry_of(one).origin.identity["benchmark"] == before.origin.identity["benchmark"]


def test_a_machine_is_this_host_here_and_the_site_on_a_cluster(tmp_path: Path) -> None:
    one, two = quick_run(tmp_path, "one"), quick_run(tmp_path, "two")
    changed(two, PROVENANCE, {"machine": {"hostname": "there", "cpu": "a processor"}})
    assert changes(entry_of(one), entry_of(two), ["machine"])
    cluster = {"name": "eos", "kind": "slurm", "environment": {}}
    for path in (one, two):
        changed(path, BENCHMARK, {"site": cluster})
    changed(two, RESULT, {"attempts": [{"nodes": "n[3-4]"}]})
    assert entry_of(one).origin.identity["machine"] == entry_of(two).origin.identity["machine"]
    assert (entry_of(one).origin.host, entry_of(two).origin.host) == (None, "n3")
    assert "processor" not in entry_of(one).origin.identity_text["machine"]
    changed(two, PROVENANCE, {"worker": [{"rank": 0, "device_kind": "NVIDIA H200"}]})
    assert entry_of(one).origin.identity["machine"] != entry_of(two).origin.identity["machine"]
