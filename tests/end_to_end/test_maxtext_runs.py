"""Real MaxText through launch/run.py, over several devices and processes, and in other precisions."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.configs import Configs
from benchmarks.model.flops import parameter_count
from jax_backend.inside import hlo
from tests.end_to_end.runs import JAX, TINY, Run, Start, finish, verify

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("runs")]

SLOWED = re.compile(r"--inject_slowdown=[\d.]+ increased the time of (\d+) steps from ([\d.]+) s to ([\d.]+) s")


def test_fsdp_times_data_over_four_devices(sharded: Run) -> None:
    assert sharded.code == 0, sharded.err
    assert sharded.result["status"] == "valid"
    assert sharded.result["benchmark"]["parallelism"] == {"fsdp": 2, "data": 2}
    assert sharded.result["benchmark"]["global_batch_size"] == 8
    assert sharded.provenance["worker"][0]["mesh"] == {"data": 2, "fsdp": 2}
    assert verify(str(sharded.folder)).returncode == 0


def test_two_processes_train_the_same_model(sharded: Run, two_processes: Run) -> None:
    assert two_processes.code == 0, two_processes.err
    assert [worker["process_count"] for worker in two_processes.provenance["worker"]] == [2, 2]
    assert {(step["rank"], step["step"]) for step in two_processes.steps} == {
        (rank, step) for rank in (0, 1) for step in range(12)
    }
    assert two_processes.losses == pytest.approx(sharded.losses, abs=1e-3)


def made_longer(run: Run, rank: int) -> float:
    """Return the fraction by which, by the worker's note, its steps after the first were slowed, or 0.

    The note must agree with the events.
    """
    notes = [note for event in run.events(rank) if event["event"] == "end" for note in event["notes"]]
    slowed = [found for found in map(SLOWED.fullmatch, notes) if found]
    seconds = [step["seconds"] for step in run.steps if step["rank"] == rank and step["step"] > 0]
    for found in slowed:
        assert int(found[1]) == len(seconds)
        assert float(found[3]) == pytest.approx(sum(seconds), rel=0.05)
    return sum(float(found[3]) / float(found[2]) - 1 for found in slowed)


def test_a_run_slowed_on_purpose_says_so_wherever_one_looks(two_processes: Run) -> None:
    """All steps after the first take both ranks the same time, of which the first rank sleeps three fifths."""
    run = two_processes
    assert (run.result["status"], run.result["slowed_by"]) == ("valid", 1.5)
    assert "slowed on purpose: every step by 150% (--inject_slowdown=1.5)" in run.result["notes"]
    assert "slowed on purpose: every step by 150% (--inject_slowdown=1.5)" in run.out
    assert json.loads((run.folder / "benchmark.json").read_text())["inject_slowdown"] == 1.5
    assert "--inject_slowdown=1.5" in run.provenance["phases"]["perf"]["argv"]
    took = [sum(step["seconds"] for step in run.steps if step["rank"] == rank and step["step"]) for rank in (0, 1)]
    assert took[1] == pytest.approx(took[0], rel=0.4)  # without waiting it would be 0.4 times as long
    assert made_longer(run, 0) == pytest.approx(1.5, abs=0.4)
    assert made_longer(run, 1) == 0
    assert verify(str(run.folder)).returncode == 0


def programs_of(run: Run) -> list[str]:
    return [worker["program"] for worker in run.provenance["worker"]]


def test_equal_steps_have_equal_digests_and_others_have_others(tiny: Run, sharded: Run, two_processes: Run) -> None:
    """The runs have separate folders, and one has two processes with half of the devices each."""
    (alone,), (over_four,) = programs_of(tiny), programs_of(sharded)
    assert re.fullmatch("[0-9a-f]{64}", alone)
    assert programs_of(two_processes) == [over_four] * 2
    assert alone != over_four
    for run in (tiny, sharded, two_processes):
        assert not [note for note in run.result["notes"] if "digest" in note]


def test_fp8_trains_and_no_speed_is_claimed_of_its_emulation(start: Start, tmp_path: Path) -> None:
    run = finish(start(tmp_path, JAX, TINY, "--dtype=fp8", "--steps=8"), tmp_path)
    assert run.code == 0, run.err
    assert run.result["status"] == "valid"
    assert verify(str(run.folder)).returncode == 0
    assert run.result["seconds_per_step"]["median"] is None
    assert run.result["tokens_per_second"] is None
    assert "emulated" in run.result["null_because"]["seconds_per_step"]
    assert "not reported" in run.out


def test_experts_of_four_devices_exchange_tokens(start: Start, tmp_path: Path) -> None:
    layout = ("--gpus=4", "--set=ici_expert_parallelism=4", "--set=ici_fsdp_parallelism=1")
    dump = (f"--set=xla_dump_to={tmp_path}/hlo", "--set=xla_dump_hlo_module_re=.*train_step.*")
    results = tmp_path / "results"
    run = finish(start(results, JAX, "--model=deepseek_tiny", *layout, *dump, "--steps=8"), results)
    assert run.code == 0, run.err
    assert run.result["status"] == "valid"
    assert run.result["benchmark"]["parallelism"] == {"fsdp": 4, "expert": 4}
    (worker,) = run.provenance["worker"]
    assert worker["mesh"] == {"expert": 4}
    assert worker["parameters"] == parameter_count(Configs().model("deepseek_tiny"))
    assert run.losses[-1] < run.losses[0]
    (program,) = hlo.dumps(tmp_path / "hlo")
    assert "all-to-all" in {one.kind for one in hlo.read_module(program).collectives()}
    assert verify(str(run.folder)).returncode == 0


def test_a_setting_maxtext_refuses_fails_with_its_words(start: Start, tmp_path: Path) -> None:
    run = finish(start(tmp_path, JAX, TINY, "--set=logical_axis_rules=nonsense", "--steps=3"), tmp_path)
    assert run.code == 1
    assert run.result["status"] == "failed"
    assert "rank 0 failed" in run.result["reasons"][0]
    assert "before its first step" in run.result["reasons"][0]
    assert "python launch/doctor.py logs " in run.out


def test_the_worker_refuses_to_train_on_other_devices_than_asked(jax_python: Path, tmp_path: Path) -> None:
    """MaxText would log success if ranks trained separately; the worker asserts processes, devices and their kind."""
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
    assert "1 of 2 processes have joined" in done.stderr
    assert "jax sees 1 devices" in done.stderr
    assert "but the benchmark needs NVIDIA H100" in done.stderr
    assert '"status": "error"' in (tmp_path / "events-rank0.jsonl").read_text()
