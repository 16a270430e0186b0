"""What the default run of each framework and task leaves, through launch/run.py, and that its figures are true."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import jax_backend
import nemo_backend
from benchmarks.backend import Backend, LogFormat
from jax_backend.logs import MaxTextLog
from nemo_backend.logs import NemoLog
from tests.end_to_end.runs import TOKEN, Run, verify

pytestmark = [pytest.mark.slow(seconds=2), pytest.mark.xdist_group("runs")]

RESULT_KEYS = [
    "schema_version", "run_id", "status", "reasons", "benchmark", "window", "seconds_per_step", "tokens_per_second",
    "tokens_per_second_effective", "tokens_per_second_per_gpu", "days_per_trillion_tokens", "model_flops_per_step",
    "mfu", "loss", "trainable_parameters", "parameters", "provenance", "reported_by_framework", "null_because",
    "notes", "attempts", "telemetry", "ranks", "pgle", "not_comparable", "hfu", "slowed_by", "mlperf",
    "flops_differences",
]  # fmt: skip
LEFT = {"attempt-1", "benchmark.json", "plan.json", "provenance.json", "result.json", "steps.jsonl", "tensorboard"}


class Framework(NamedTuple):
    backend: Backend
    engine: str
    dtype: str
    versions: dict[str, str]
    setting: str
    log: LogFormat
    log_digits: float  # of a loss, relative


MAXTEXT = Framework(
    jax_backend.BACKEND, "maxtext", "bf16", {"maxtext": "0.2.5"}, "model_name=llama2-7b", MaxTextLog(), 1e-4
)
NEMO = Framework(
    nemo_backend.BACKEND,
    "nemo",
    "fp32",
    {"nemo-toolkit": "2.7.3", "megatron-core": "0.15.3"},
    "model.config.num_layers=2",
    NemoLog(),
    1e-3,
)
FRAMEWORKS = {"tiny": MAXTEXT, "nemo_pretrain": NEMO, "nemo_lora": NEMO}


@pytest.fixture(params=FRAMEWORKS)
def named(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def framework(named: str) -> Framework:
    return FRAMEWORKS[named]


@pytest.fixture
def run(named: str, request: pytest.FixtureRequest) -> Run:
    found: Run = request.getfixturevalue(named)
    return found


def test_it_is_valid_and_verifies_and_its_folder_is_whole(run: Run) -> None:
    assert run.code == 0, run.err
    assert list(run.result) == RESULT_KEYS
    assert (run.result["status"], run.result["reasons"]) == ("valid", [])
    agreed = verify(str(run.folder))
    assert agreed.returncode == 0, agreed.stdout + agreed.stderr
    assert {path.name for path in run.folder.iterdir()} == LEFT
    assert all(path.stat().st_size for path in run.folder.iterdir() if path.is_file())
    names = {path.name for path in (run.folder / "attempt-1/perf").iterdir() if path.is_file()}
    assert {"events-rank0.jsonl", "rank-0.log", "exits.jsonl"} <= names


def test_every_step_is_kept_the_seconds_add_up_and_it_learns(run: Run) -> None:
    steps = run.steps
    assert [step["step"] for step in steps] == list(range(50))
    assert {step["tokens"] for step in steps} == {256}
    assert steps[0]["excluded_because"] == "compile"
    total = math.fsum(step["seconds"] for step in steps)
    assert total == pytest.approx(steps[-1]["elapsed_seconds"], rel=1e-6)
    assert all(math.isfinite(loss) for loss in run.losses)
    assert run.losses[-1] < run.losses[0] - 0.05


def test_the_frameworks_own_timers_leave_out_what_ours_measures(tiny: Run, nemo_pretrain: Run) -> None:
    """MaxText's the wait of the first step for the compiler, NeMo's what happens between two steps."""
    assert tiny.steps[0]["framework_seconds"] < tiny.steps[0]["seconds"]
    ours, theirs = (
        math.fsum(step[name] for step in nemo_pretrain.steps[1:]) for name in ("seconds", "framework_seconds")
    )
    assert 0 < theirs < ours


def test_a_person_sees_the_figures_the_files_and_what_to_do_next(run: Run) -> None:
    for words in ("VALID", "Step time", "95% CI", "tokens/s", "Loss", str(run.folder)):
        assert words in run.out
    assert len(run.out.splitlines()) <= 8
    assert re.search(r"Next  python launch/verify.py .*\w{4}$", run.out.rstrip())
    assert re.search(r"step 50/50 · 0 s left · .*/step · [\d,.]+ tokens/s · loss \d\.\d+", run.err)
    assert "\x1b" not in run.out + run.err  # plain without a terminal


def test_a_cpu_claims_no_mfu_and_says_why(run: Run, framework: Framework) -> None:
    assert run.result["mfu"] is None
    assert f"no {framework.dtype} peak is published" in run.result["null_because"]["mfu"]


def test_provenance_names_versions_machine_and_final_arguments(run: Run, framework: Framework) -> None:
    (worker,) = run.provenance["worker"]
    assert framework.versions.items() <= worker["versions"].items()
    assert framework.setting in worker["argv"]
    assert (worker["process_count"], worker["device_count"], worker["device_kind"]) == (1, 1, "cpu")
    assert run.provenance["machine"]["hostname"]
    argv = run.provenance["phases"]["perf"]["argv"]
    assert not any("{" in word for word in argv)
    assert argv[argv.index("--") + 1 :] == worker["argv"]
    assert run.provenance["shell"]["HF_TOKEN"] == "<redacted>"


def test_provenance_names_the_lock_file_whose_packages_the_worker_has(run: Run, framework: Framework) -> None:
    named = run.provenance["environment"]
    locks = framework.backend.environment(framework.engine).locks
    (lock,) = [lock for lock in locks if lock.path.name == named["lock_file"]]
    python = Path(run.provenance["phases"]["perf"]["argv"][0])
    made = json.loads((python.parents[1] / "complete").read_text())
    assert made["lock_sha256"] == named["lock_sha256"]
    assert named["lock_sha256"][:12] in python.parents[1].name
    pinned = dict(re.findall(r"^([\w.-]+)==([^\s\\]+)", lock.path.read_text(), re.MULTILINE))
    (worker,) = run.provenance["worker"]
    for name in (*framework.versions, "numpy"):
        assert worker["versions"][name] == pinned[name]


def test_no_secret_and_nothing_in_the_home(run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    for path in run.folder.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path
    assert TOKEN not in run.out + run.err
    for home in tmp_path_factory.getbasetemp().glob("home*"):
        assert [p for p in home.iterdir() if p.name != "results"] == []


def test_tensorboard_reads_the_scalars(run: Run) -> None:
    events = EventAccumulator(str(run.folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    figures = {f"perf/{name}" for name in ("step_seconds", "tokens_per_second", "tokens_per_second_per_gpu")}
    # A run may be over before a sample of its machine falls within a step.
    assert {tag for tag in events.Tags()["scalars"] if not tag.startswith("telemetry/")} == figures | {"train/loss"}
    assert [event.step for event in events.Scalars("perf/step_seconds")] == list(range(50))
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(run.losses, rel=1e-6)


def test_ingest_reads_our_own_log_and_agrees_with_what_was_reported(run: Run, framework: Framework) -> None:
    with (run.folder / "attempt-1/perf/rank-0.log").open("rb") as stream:
        printed = [event.step for event in framework.log.read(stream) if event.step]
    assert [step.step for step in printed] == list(range(50))
    for line, ours in zip(printed, run.steps, strict=True):
        seconds = line.framework_seconds if framework is MAXTEXT else line.seconds
        assert seconds == pytest.approx(ours["framework_seconds"], rel=1e-3, abs=0.00051)
        assert line.loss == pytest.approx(ours["loss"], rel=framework.log_digits, abs=0.00051)


@pytest.mark.parametrize("name", ["attempt-1/perf/rank-0.log", "benchmark.json", "attempt-1/perf/events-rank0.jsonl"])
def test_verify_finds_a_raw_file_that_was_touched(tiny: Run, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(tiny.folder, tmp_path / tiny.folder.name))
    with (folder / name).open("ab") as stream:
        stream.write(b"\n")
    touched = verify(str(folder))
    assert touched.returncode == 3
    assert f"{name} was changed after the run" in touched.stdout
