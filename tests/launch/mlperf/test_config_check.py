"""launch/plan.py mlperf on configurations as files, runs refused by the same rules, the jobs for data."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_REFUSED, EXIT_VALID, RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, JobOptions
from launch.mlperf import admit
from launch.mlperf.config_check import show
from nemo_backend import BACKEND
from tests import forked

REPOSITORY = Path(__file__).resolve().parents[3]
CONFIGS = Configs()
COMMON = "export PP=1\nexport VAL_CHECK_INTERVAL=384\nexport DGXSYSTEM=$(basename $0)\n"
GUIDE = """#!/bin/bash
source $(dirname ${BASH_SOURCE[0]})/config_common.sh
export MAX_STEPS=1000
export LR=0.0005
export MINIBS=1
export TP=8
export CP=1
export FP8_ACT=1
export VAL_CHECK_INTERVAL=50
export LIMIT_VAL_BATCHES=1.0
export VBOOST_VALUE=0
export DGXNNODES=1
export DGXNGPU=8
export WALLTIME_RUNANDTIME=80
export WALLTIME=$((5 + ${NEXP:-1} * ($WALLTIME_RUNANDTIME + 5)))
"""
SCRIPT, LORA = "launch/plan.py", "llama2_70b_lora"


def written(folder: Path, text: str = GUIDE, name: str = "config_H100_optimal.sh") -> Path:
    (folder / "config_common.sh").write_text(COMMON)
    (folder / name).write_text(text)
    return folder / name


def test_a_quick_test_of_a_guide_is_refused_with_everything_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GUIDE.replace("MAX_STEPS=1000", "MAX_STEPS=100").replace("INTERVAL=50", "INTERVAL=1152")
    assert show(written(tmp_path, text), LORA, CONFIGS) == EXIT_REFUSED
    out = capsys.readouterr().out
    assert "(2 + 1) x 1152 = 3456 > MAX_STEPS 100" in out
    assert "a global batch of 1 is smaller than the smallest reference convergence point, 8" in out
    assert "config_common.sh:3  no plain export" in out
    assert "3 of 3 findings refuse it (closed division)" in out


def test_the_published_configuration_breaks_no_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        GUIDE.replace("TP=8", "TP=4").replace("MINIBS=1", "MINIBS=4").replace("INTERVAL=50", "INTERVAL=384")
        .replace("MAX_STEPS=1000", "MAX_STEPS=800").replace("0.0005", "0.0004")
    )  # fmt: skip
    assert show(written(tmp_path, text), LORA, CONFIGS) == EXIT_VALID
    assert "no rule is broken" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (GUIDE, "llama2_70b", "did you mean 'llama2_70b_lora'"),
        (GUIDE, None, "which benchmark it is for is not said"),
        (GUIDE.replace("MINIBS=1", "MINIBS=one"), "llama2_70b_lora", "MINIBS=one: a whole number of 1 or more"),
    ],
)
def test_what_cannot_be_looked_at(tmp_path: Path, text: str, name: str | None, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        show(written(tmp_path, text), name, CONFIGS)
    assert words in str(refused.value)


def test_the_script_takes_no_other_flag(tmp_path: Path) -> None:
    path = written(tmp_path)
    said = (REPOSITORY / SCRIPT, "mlperf", path, f"--benchmark={LORA}")
    done = forked.run(*said)
    assert (done.returncode, done.stderr) == (2, "")
    also = forked.run(*said, "--gpus=8")
    assert also.returncode == 2
    assert "unknown flag --gpus" in also.stderr


# --- runs -----------------------------------------------------------------------------------------


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
    assert "2 reasons why this cannot be run" in closed.value.what
    with pytest.raises(RequestError, match="comes after the last step, 100") as late:
        admit.admit(guide(steps=100, settings={"VAL_CHECK_INTERVAL": "1152"}), CONFIGS, JobOptions(time="90"))
    assert "(2 + 1) x 1152 = 3456 > MAX_STEPS 100" in late.value.why
    with pytest.raises(RequestError, match="60 minutes are too few"):
        admit.admit(guide(), CONFIGS, JobOptions(time="1:00:00"))
    with pytest.raises(RequestError, match="LIMIT_VAL_BATCHES"):
        admit.admit(guide(settings={"env.LIMIT_VAL_BATCHES": "0.1"}), CONFIGS, JobOptions(time="90"))


def test_a_shared_node_is_left_as_it_is() -> None:
    shared = JobOptions(time="90", exclusive=False)
    with pytest.raises(RequestError, match="drops the caches of a node for everybody"):
        admit.admit(guide(), CONFIGS, shared)
    quiet = guide(settings={"CLEAR_CACHES": "false"})
    assert admit.admit(quiet, CONFIGS, shared)


def test_a_submissions_own_time_is_the_jobs_unless_another_is_typed() -> None:
    assert admit.with_its_time(guide(), JobOptions(time="1:00:00"), typed=False).time == "90"
    assert admit.with_its_time(guide(), JobOptions(time="2:00:00"), typed=True).time == "2:00:00"


@pytest.mark.parametrize("name", ["llama2_70b_lora", "llama31_8b", "flux1"])
def test_the_job_that_makes_the_data_shows_every_step(name: str, tmp_path: Path) -> None:
    said = ["--site=example_pyxis", f"--model={name}", "--task=mlperf", f"--out={tmp_path}", "--dry_run"]
    done = forked.run(REPOSITORY / "launch/setup.py", *said)
    assert done.returncode == 0, done.stderr
    subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True, timeout=10)
    for step in CONFIGS.submission(name).steps:
        assert f'"$folder/{step.name}.end"' in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        *("VAL_CHECK_INTERVAL=0", "VAL_CHECK_INTERVAL=-5", "MINIBS=0", "MAX_STEPS=0", "LR=nan", "LR=-1", "LR=1e999"),
        f"MAX_STEPS={'9' * 5000}",
    ],
)
def test_numbers_that_no_run_can_have_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(RequestError):
        show(written(tmp_path, f"{GUIDE}export {line}\n"), LORA, CONFIGS)
