"""Real MaxText through launch/run.py: what a run leaves, and that its figures are true."""

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.runs import JAX, TINY, TOKEN, Run, Start, finish, verify

pytestmark = pytest.mark.slow

RESULT_KEYS = [
    "schema_version",
    "run_id",
    "status",
    "reasons",
    "benchmark",
    "window",
    "seconds_per_step",
    "tokens_per_second",
    "tokens_per_second_effective",
    "tokens_per_second_per_gpu",
    "days_per_trillion_tokens",
    "model_flops_per_step",
    "mfu",
    "loss",
    "trainable_parameters",
    "parameters",
    "provenance",
    "reported_by_framework",
    "null_because",
    "notes",
    "attempts",
    "telemetry",
    "ranks",
    "pgle",
    "not_comparable",
    "hfu",
    "slowed_by",
    "convergence",
    "mlperf",
]


def test_the_default_run_is_valid_and_verifies(tiny: Run) -> None:
    assert tiny.code == 0, tiny.err
    assert list(tiny.result) == RESULT_KEYS
    assert tiny.result["status"] == "valid"
    assert tiny.result["reasons"] == []
    assert tiny.result["parameters"] == tiny.result["trainable_parameters"] == 106_816
    agreed = verify(str(tiny.folder))
    assert agreed.returncode == 0, agreed.stdout + agreed.stderr


def test_the_run_folder_is_whole(tiny: Run) -> None:
    for name in ("benchmark.json", "plan.json", "provenance.json", "steps.jsonl", "result.json"):
        assert (tiny.folder / name).stat().st_size > 0
    names = {path.name for path in (tiny.folder / "attempt-1/perf").iterdir()}
    assert {"events-rank0.jsonl", "rank-0.log", "exits.jsonl"} <= names


def test_every_step_is_kept_and_the_seconds_add_up(tiny: Run) -> None:
    steps = tiny.steps
    assert [step["step"] for step in steps] == list(range(50))
    assert {step["tokens"] for step in steps} == {256}
    assert steps[0]["excluded_because"] == "compile"
    total = math.fsum(step["seconds"] for step in steps)
    assert total == pytest.approx(steps[-1]["elapsed_seconds"], rel=1e-6)
    # What MaxText itself prints belongs to other steps: it does not see that the first one waits for the compiler.
    assert steps[0]["framework_seconds"] < steps[0]["seconds"]


def test_the_loss_falls(tiny: Run) -> None:
    losses = [step["loss"] for step in tiny.steps]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0] - 0.05


def test_a_person_sees_the_figures_the_files_and_what_to_do_next(tiny: Run) -> None:
    for words in ("valid", "seconds/step", "95% interval", "tokens/s", "effective", "loss", str(tiny.folder)):
        assert words in tiny.out
    assert f"python launch/verify.py {tiny.folder}" in tiny.out
    assert re.search(r"step 50/50 · .*/step · [\d,]+ tokens/s · loss 5\.\d+ · 0 s left", tiny.err)
    assert "\x1b" not in tiny.out + tiny.err  # plain without a terminal


def test_a_cpu_claims_no_mfu_and_says_why(tiny: Run) -> None:
    assert tiny.result["mfu"] is None
    assert "no published bf16 peak" in tiny.result["null_because"]["mfu"]


def test_provenance_names_versions_lock_machine_and_final_arguments(tiny: Run) -> None:
    about = json.loads((tiny.folder / "provenance.json").read_text())
    assert about["worker"][0]["versions"]["maxtext"] == "0.2.5"
    assert "model_name=llama2-7b" in about["worker"][0]["argv"]
    assert len(about["environment"]["lock_sha256"]) == 64
    assert about["machine"]["hostname"]
    argv = about["phases"]["perf"]["argv"]
    assert not any("{" in word for word in argv)
    assert about["phases"]["perf"]["environment"]["JAX_PLATFORMS"] == "cpu"
    assert about["shell"]["HF_TOKEN"] == "<redacted>"


def test_no_secret_and_nothing_in_the_home(tiny: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    for path in tiny.folder.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path
    assert TOKEN not in tiny.out + tiny.err
    for home in tmp_path_factory.getbasetemp().glob("home*"):
        assert [p for p in home.iterdir() if p.name != "results"] == []


def test_tensorboard_reads_the_scalars(tiny: Run) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tiny.folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    figures = {f"perf/{name}" for name in ("step_seconds", "tokens_per_second", "tokens_per_second_per_gpu")}
    # A run may be over before a sample of its machine falls within a step.
    assert {tag for tag in events.Tags()["scalars"] if not tag.startswith("telemetry/")} == figures | {"train/loss"}
    assert [event.step for event in events.Scalars("perf/step_seconds")] == list(range(50))


def test_ingest_reads_the_log_of_our_own_run_and_agrees_with_what_maxtext_reported(tiny: Run) -> None:
    from jax_backend.logs import MaxTextLog

    with (tiny.folder / "attempt-1/perf/rank-0.log").open("rb") as stream:
        printed = [event.step for event in MaxTextLog().read(stream) if event.step]
    assert [step.step for step in printed] == list(range(50))
    for line, ours in zip(printed, tiny.steps, strict=True):
        assert line.framework_seconds == pytest.approx(ours["framework_seconds"], abs=0.00051)
        assert line.loss == pytest.approx(ours["loss"], abs=0.00051)


def test_fsdp_times_data_over_eight_devices(sharded: Run) -> None:
    assert sharded.code == 0, sharded.err
    assert sharded.result["status"] == "valid"
    assert sharded.result["benchmark"]["parallelism"] == {"fsdp": 4, "data": 2}
    assert sharded.result["benchmark"]["global_batch_size"] == 16
    about = json.loads((sharded.folder / "provenance.json").read_text())
    assert about["worker"][0]["mesh"] == {"data": 2, "fsdp": 4}
    assert verify(str(sharded.folder)).returncode == 0


def test_two_processes_train_the_same_model(sharded: Run, two_processes: Run) -> None:
    assert two_processes.code == 0, two_processes.err
    about = json.loads((two_processes.folder / "provenance.json").read_text())
    assert [worker["process_count"] for worker in about["worker"]] == [2, 2]
    assert {(step["rank"], step["step"]) for step in two_processes.steps} == {
        (rank, step) for rank in (0, 1) for step in range(12)
    }
    together = [step["loss"] for step in two_processes.steps if step["rank"] == 0]
    alone = [step["loss"] for step in sharded.steps]
    assert together == pytest.approx(alone, abs=1e-3)


def programs_of(run: Run) -> list[str]:
    return [worker["program"] for worker in run.provenance["worker"]]


def test_equal_steps_have_equal_digests_and_others_have_others(tiny: Run, sharded: Run, two_processes: Run) -> None:
    """In folders of their own, and one of them of two processes with half of the devices each."""
    (alone,), (over_eight,) = programs_of(tiny), programs_of(sharded)
    assert re.fullmatch("[0-9a-f]{64}", alone)
    assert programs_of(two_processes) == [over_eight] * 2
    assert alone != over_eight
    for run in (tiny, sharded, two_processes):
        assert not [note for note in run.result["notes"] if "digest" in note]


@pytest.mark.parametrize("dtype", ["int8", "fp8"])
def test_other_precisions(start: Start, tmp_path: Path, dtype: str) -> None:
    run = finish(start(tmp_path, JAX, TINY, f"--dtype={dtype}", "--steps=8"), tmp_path)
    assert run.code == 0, run.err
    assert run.result["status"] == "valid"
    assert verify(str(run.folder)).returncode == 0
    speed = run.result["seconds_per_step"]["median"]
    if dtype == "fp8":
        assert speed is None
        assert run.result["tokens_per_second"] is None
        assert "emulated" in run.result["null_because"]["seconds_per_step"]
        assert "not claimed" in run.out
    else:
        assert speed > 0


def test_a_setting_maxtext_refuses_fails_with_its_words(start: Start, tmp_path: Path) -> None:
    run = finish(start(tmp_path, JAX, TINY, "--set=logical_axis_rules=nonsense", "--steps=3"), tmp_path)
    assert run.code == 1
    assert run.result["status"] == "failed"
    assert "rank 0 failed" in run.result["reasons"][0]
    assert "before its first step" in run.result["reasons"][0]
    assert "tail -n 40" in run.out


def test_the_worker_refuses_to_train_on_other_devices_than_asked(jax_python: Path, tmp_path: Path) -> None:
    """MaxText would log success with every rank alone; the worker asserts processes, devices and their kind."""
    worker = Path(__file__).resolve().parents[2] / "jax_backend/inside/worker.py"
    size = ["--processes=2", "--devices=8", "--tasks_per_node=1"]
    command = [str(jax_python), "-P", str(worker), f"--events_dir={tmp_path}", *size]
    alone = "import jax; jax.distributed.initialize = lambda *a, **k: None"  # as if the rendezvous was ignored
    wrapper = f"{alone}; import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run(
        [command[0], "-c", wrapper, *command[2:], "--device_name=NVIDIA H100", "--", "steps=1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 1
    assert "1 processes have joined, 2 were started" in done.stderr
    assert "1 devices are there, the benchmark is for 8" in done.stderr
    assert "the device is 'cpu', the benchmark is for NVIDIA H100" in done.stderr
    assert '"status": "error"' in (tmp_path / "events-rank0.jsonl").read_text()


@pytest.mark.parametrize("name", ["attempt-1/perf/rank-0.log", "benchmark.json", "attempt-1/perf/events-rank0.jsonl"])
def test_verify_finds_a_raw_file_that_was_touched(tiny: Run, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(tiny.folder, tmp_path / tiny.folder.name))
    with (folder / name).open("ab") as stream:
        stream.write(b"\n")
    touched = verify(str(folder))
    assert touched.returncode == 3
    assert f"{name} was changed after the run" in touched.stdout
    shutil.rmtree(folder)
    assert verify(str(shutil.copytree(tiny.folder, folder))).returncode == 0


def test_a_run_that_trains_nothing_is_invalid(start: Start, tmp_path: Path) -> None:
    run = finish(start(tmp_path, JAX, TINY, "--set=learning_rate=0", "--steps=6"), tmp_path)
    assert run.code == 3
    assert run.result["status"] == "invalid"
    assert "the same to the last bit in all 6 steps: nothing was trained" in run.result["reasons"][0]
