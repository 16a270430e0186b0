"""The table of step times over run folders of Stepmark: profiled runs, phases that are not measured, PGLE's steps."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Plan, Step
from jax_backend import BACKEND
from launch.running.step_sink import StepSink
from tests.launch.test_report_script import START, as_json, run, seconds_of, steps

PLAIN = resolve(Request(backend="jax", model="llama2_tiny"), Configs(), BACKEND)


def run_folder(root: Path, phases: tuple[str, ...] = ("perf",), log: str = START + steps(50), **changes: Any) -> Path:
    """A run whose last phase is the measured one; in each, the log of one rank."""
    folder = RunFolder.create(root, "20261122T000000Z-jax-1cpu-abcd")
    folder.write("benchmark.json", msgspec.structs.replace(PLAIN, **changes))
    (phase,) = BACKEND.plan(PLAIN).phases[-1:]
    made = [msgspec.structs.replace(phase, name=name, writes_steps=name in ("fill", "perf")) for name in phases]
    folder.write("plan.json", Plan(backend="jax", environment_name="e", phases=made))
    for name in phases:
        folder.phase_dir(name).mkdir(parents=True)
        (folder.phase_dir(name) / "rank-0.log").write_text(log)
    return folder.path


def by_phase(report: Any) -> dict[str, Any]:
    return {Path(row["path"]).parent.name: row for row in report["rows"] if row["path"].endswith("rank-0.log")}


@pytest.mark.parametrize("kind", ["xplane", "nsys", "nccl"])
def test_a_profiled_run_is_not_compared(tmp_path: Path, kind: str) -> None:
    run_folder(tmp_path, profile=kind)
    report = as_json("--window=11-44", tmp_path)
    row = by_phase(report)["perf"]
    assert row["status"] == "Not compared"
    assert row["reason"].startswith(f"profiled (--profile={kind})")
    assert {value for name, value in row.items() if "seconds" in name or "tflops" in name} == {None}
    assert (row["steps_counted"], row["reached_step"]) == (0, 49)
    text = run("--window=11-44", tmp_path).stdout.decode()
    assert "Not compared (1):" in text
    assert "Success" not in text
    assert text.splitlines()[-1] == "3 files: 1 Not compared, 2 Not a training log"


def test_phases_that_are_not_measured_are_named_as_that(tmp_path: Path) -> None:
    run_folder(tmp_path, ("profile", "fill", "perf"), pgle="nsys")
    (tmp_path / "20261122T000000Z-jax-1cpu-abcd/steps.jsonl").write_text("")
    report = as_json("--window=11-44", tmp_path)
    rows = by_phase(report)
    assert {name: row["status"] for name, row in rows.items()} == {
        "profile": "Not compared", "fill": "Not compared", "perf": "Success"
    }  # fmt: skip
    assert rows["profile"]["reason"] == "of phase profile: not measured"
    assert rows["profile"]["seconds_mean"] is rows["fill"]["seconds_mean"] is None


def test_a_profiled_run_that_failed_has_failed(tmp_path: Path) -> None:
    died = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB\n"
    run_folder(tmp_path, log=START + steps(20) + died, profile="xplane")
    row = by_phase(as_json("--window=11-15", tmp_path))["perf"]
    assert (row["status"], row["ending"], row["seconds_mean"]) == ("Not compared", "gpu_memory", None)
    row = by_phase(as_json("--window=11-44", tmp_path))["perf"]
    assert (row["status"], row["ending"], row["seconds_mean"]) == ("Failed", "gpu_memory", None)
    assert "profiled (--profile=xplane)" in row["reason"]


def test_steps_that_the_run_leaves_out_for_pgle_are_in_no_mean(tmp_path: Path) -> None:
    folder = RunFolder(run_folder(tmp_path, pgle="auto"))
    marks = {35: "pgle", 36: "pgle", 37: "settling", 38: "outside_window"}
    folder.write_steps(
        Step(step=n, seconds=1.0, loss=1.0, tokens=1, excluded_because=marks.get(n)) for n in range(50)
    )
    row = by_phase(as_json(tmp_path))["perf"]
    counted = [seconds_of(n) for n in range(37, 45)]
    assert (row["status"], row["steps_counted"], row["excluded"]) == ("Success", 8, {"pgle": "35-36"})
    assert row["seconds_mean"] == pytest.approx(sum(counted) / len(counted), abs=1e-3)


@pytest.mark.parametrize("lost", ["benchmark.json", "plan.json", "steps.jsonl"])
def test_a_record_that_can_not_be_read_is_said(tmp_path: Path, lost: str) -> None:
    folder = run_folder(tmp_path, pgle="auto")
    (folder / "steps.jsonl").write_text("")
    (folder / lost).write_text("{ cut")
    row = by_phase(as_json(tmp_path))["perf"]
    assert row["status"] == "Success"
    assert "can't be read" in row["reason"]


def test_the_scalars_of_a_profiled_run_have_tags_of_their_own(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for kind, place in (("none", "perf"), ("xplane", "profiled")):
        folder = RunFolder(run_folder(tmp_path / kind, profile=kind))
        with StepSink(folder, folder.benchmark()) as sink:
            sink.take([Step(step=n, seconds=0.5, loss=6.0, tokens=None) for n in range(3)])
        events = EventAccumulator(str(folder.path / "tensorboard"))
        events.Reload()
        figures = {f"{place}/{name}" for name in ("step_seconds", "tokens_per_second", "tokens_per_second_per_gpu")}
        assert set(events.Tags()["scalars"]) == figures | {"train/loss"}
