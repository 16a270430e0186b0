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
LORA = "llama2_70b_lora"


def written(folder: Path, text: str = GUIDE, name: str = "config_H100_optimal.sh") -> Path:
    (folder / "config_common.sh").write_text(COMMON)
    (folder / name).write_text(text)
    return folder / name


PUBLISHED = {
    "TP=8": "TP=4", "MINIBS=1": "MINIBS=4", "INTERVAL=50": "INTERVAL=384", "MAX_STEPS=1000": "MAX_STEPS=800",
    "0.0005": "0.0004",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (
            {"MAX_STEPS=1000": "MAX_STEPS=100", "INTERVAL=50": "INTERVAL=1152"},
            EXIT_REFUSED,
            [
                "(2 + 1) x 1152 = 3456 > MAX_STEPS 100",
                "a global batch of 1 is smaller than the smallest reference convergence point, 8",
                "config_common.sh:3  no plain export",
                "3 of 3 findings refuse it (closed division)",
            ],
        ),
        (PUBLISHED, EXIT_VALID, ["no rule is broken"]),
    ],
)
def test_a_configuration_is_shown_with_everything_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], code: int, words: list[str]
) -> None:
    text = GUIDE
    for old, new in change.items():
        text = text.replace(old, new)
    assert show(written(tmp_path, text), LORA, CONFIGS) == code
    out = capsys.readouterr().out
    assert [one for one in words if one not in out] == []


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [
        ("", "llama2_70b", "did you mean 'llama2_70b_lora'"),
        ("", None, "which benchmark it is for is not said"),
        ("MINIBS=one", LORA, "MINIBS=one: a whole number of 1 or more"),
        *((line, LORA, line[:20]) for line in ("VAL_CHECK_INTERVAL=0", "VAL_CHECK_INTERVAL=-5", "MINIBS=0")),
        *((line, LORA, line[:20]) for line in ("MAX_STEPS=0", "LR=nan", "LR=-1", "LR=1e999")),
        (f"MAX_STEPS={'9' * 5000}", LORA, "MAX_STEPS=9999"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(tmp_path: Path, line: str, name: str | None, words: str) -> None:
    text = f"{GUIDE}export {line}\n" if line else GUIDE
    with pytest.raises(RequestError) as refused:
        show(written(tmp_path, text), name, CONFIGS)
    assert words in str(refused.value)


def test_a_file_of_which_nothing_can_be_read_could_not_be_submitted(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="the file sets no variable that can be read"):
        show(written(tmp_path, "x: [1\n"), LORA, CONFIGS)


def test_the_script_takes_no_other_flag(tmp_path: Path) -> None:
    said = (REPOSITORY / "launch/plan.py", "mlperf", written(tmp_path), f"--benchmark={LORA}")
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
