"""launch/ingest.py on MLLOG files, as a user runs them."""

import json
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.logs.report import IngestDocument
from tests import forked
from tests.benchmarks.mlperf.made_runs import WrittenRun, made_run, write

LAUNCH = Path(__file__).resolve().parents[3] / "launch"


def run(script: str, *arguments: str) -> str:
    done = forked.run(LAUNCH / script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_json(log: Path) -> Any:
    found = json.loads(run("ingest.py", "--json", f"--log={log}"))
    msgspec.convert(found, IngestDocument)
    return found


def labelled(run: WrittenRun, path: Path) -> Path:
    """As srun -l writes it to a job's output, among other lines."""
    write(run, path)
    lines = [f"0: {line}" for line in path.read_text().splitlines()]
    path.write_text("\n".join(["MASTER_PORT 29500", *lines, "3: NCCL INFO done"]) + "\n")
    return path


def test_a_log_is_reported_with_its_steps_and_its_runs(tmp_path: Path) -> None:
    report = as_json(labelled(made_run(), tmp_path / "slurm-70.out"))
    assert report["format"] == "mllog" and report["skipped_lines"] == []
    assert {step["seconds"] for step in report["attempts"][0]["steps"]} == {0.4}
    (mlperf,) = report["mlperf"]
    assert (mlperf["status"], mlperf["samples"], mlperf["global_batch_size"]) == ("success", 3456, 8)
    assert mlperf["time_to_train_minutes"] * 60 == 184.85
    assert mlperf["evaluations"][-1] == {"samples": 3456, "value": 0.925 * 0.999}
    assert mlperf["convergence"]["expected"]["samples"] > 3000


def test_several_experiments_of_one_job_are_reported_one_by_one(tmp_path: Path) -> None:
    first = labelled(made_run(status="aborted"), tmp_path / "a")
    second = labelled(made_run(extra_lines={"seed": 2}), tmp_path / "b")
    both = tmp_path / "slurm-71.out"
    both.write_text(first.read_text() + second.read_text())
    report = as_json(both)
    assert [mlperf["status"] for mlperf in report["mlperf"]] == ["aborted", "success"]
    assert len(report["attempts"]) == 2


def test_a_truncated_line_is_named(tmp_path: Path) -> None:
    log = write(made_run(), tmp_path / "a.txt")
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:40], lines[40][:50], *lines[41:]]))
    report = as_json(log)
    (skipped,) = report["skipped_lines"]
    assert skipped["line"] == 41 and "truncated" in skipped["reason"]
    assert any(found["line"] == 41 and found["level"] == "error" for found in report["mlperf"][0]["findings"])


def test_a_log_without_a_framework_is_compared_with_no_published_row(tmp_path: Path) -> None:
    log = write(made_run(), tmp_path / "a.txt")
    flags = ["--model=llama2_70b", "--hardware=h100", "--gpus=64", "--dtype=fp8", "--global_batch_size=8"]
    text = run("ingest.py", "--json", f"--log={log}", *flags, "--sequence_length=8192", "--task=lora")
    report = json.loads(text)
    assert report["result"]["seconds_per_step"]["median"] == 0.4
    assert "a log of format mllog" in report["no_reference_because"]
