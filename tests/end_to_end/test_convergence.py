"""Real MaxText and NeMo trained until they know a small real text: to the target, and not so far.

Of a pretraining MaxText reaches the target, and NeMo is cut short; both reach that of adapters.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.runs import JAX, NEMO, Run, Start, finish, script, verify

pytestmark = pytest.mark.slow(seconds=45)

PRETRAINING, ADAPTERS = "--model=llama31_8b_tiny", "--model=llama2_70b_lora_tiny"
LAST_STEP = 384
GUESSING = 6.2383  # nats a token: the logarithm of the vocabulary


def trained(start: Start, place: Path, *flags: str) -> Run:
    return finish(start(place, "--task=mlperf", *flags), place)


def judged(run: Run) -> "subprocess.CompletedProcess[str]":
    """By MLPerf's own compliance checker, told the small copy's target and values."""
    return script("report", "mlperf", run.folder / "mlperf")


@pytest.fixture(scope="module")
def pretrained(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(start, tmp_path_factory.mktemp("pretrained"), JAX, PRETRAINING)


@pytest.fixture(scope="module")
def adapted(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(start, tmp_path_factory.mktemp("adapted"), JAX, ADAPTERS)


@pytest.fixture(scope="module")
def adapted_by_nemo(start_nemo: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(start_nemo, tmp_path_factory.mktemp("nemo"), NEMO, ADAPTERS)


@pytest.mark.parametrize("name", ["pretrained", "adapted", "adapted_by_nemo"])
def test_a_run_stops_at_its_target_says_so_and_its_log_passes(request: pytest.FixtureRequest, name: str) -> None:
    run: Run = request.getfixturevalue(name)
    assert run.code == 0, run.out + run.err
    found: dict[str, Any] = run.result["convergence"]
    assert found["status"] == "success"
    losses = [one["loss"] for one in found["evaluations"]]
    assert losses[-1] <= found["target_loss"] < min(losses[:-1])
    assert found["sequences"] == found["evaluations"][-1]["sequences"] == 16 * len(run.losses)
    assert len(run.losses) < LAST_STEP, "it stopped before its last step"
    taken = found["time_to_train"]
    parts = [taken[f"{part}_seconds"] for part in ("training", "evaluation", "checkpoint", "other")]
    assert sum(parts) == pytest.approx(taken["total_seconds"], rel=0.02)
    assert taken["evaluation_seconds"] > 0
    assert "converging: " in run.err
    assert "is the target of" in run.err
    agreed = verify(str(run.folder))
    assert agreed.returncode == 0, agreed.stdout + agreed.stderr
    verdict = judged(run)
    assert "compliance_checker" in verdict.stdout
    assert "SUCCESS" in verdict.stdout, verdict.stdout + verdict.stderr
    assert "derived" in verdict.stdout


def assert_aborted(run: Run) -> None:
    """It says so everywhere, and its log does not pass."""
    assert run.code == 3, run.out + run.err
    assert run.result["status"] == "invalid"
    assert run.result["reasons"][0].startswith("aborted: the loss was ")
    assert run.result["convergence"]["status"] == "aborted"
    assert run.result["convergence"]["time_to_train"] is None
    lines = (run.folder / "mlperf" / "result_0.txt").read_text().splitlines()
    (stop,) = [json.loads(line.partition(" ")[2]) for line in lines if '"run_stop"' in line]
    assert stop["metadata"]["status"] == "aborted"
    verdict = judged(run)
    assert verdict.returncode == 3, verdict.stdout
    assert "aborted" in verdict.stdout


def test_both_backends_begin_with_the_same_weights_and_the_same_text(adapted: Run, adapted_by_nemo: Run) -> None:
    """The first loss is of the given weights on the first batch: adapters add nothing yet."""
    assert adapted.losses[0] == pytest.approx(adapted_by_nemo.losses[0], rel=1e-5)
    # Adapters begin with other random numbers; so the same course is all that can be asked for afterwards.
    assert adapted.losses[119] == pytest.approx(adapted_by_nemo.losses[119], rel=0.05)


def test_a_pretraining_that_is_cut_short_learns_and_is_aborted(start_nemo: Start, tmp_path: Path) -> None:
    run = trained(start_nemo, tmp_path, NEMO, PRETRAINING, "--steps=72")
    assert_aborted(run)
    evaluations = run.result["convergence"]["evaluations"]
    assert [one["sequences"] for one in evaluations] == [384, 768, 1152]
    losses = [one["loss"] for one in evaluations]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < GUESSING - 1
