"""Profile-guided latency estimation on the real MaxText: jax's own way, and the three phases on a real Slurm.

Without Nsight Systems and a GPU whose compiler would read a profile, tests/stand_ins/nsys runs in its place, and
these runs cannot be valid PGLE results. The tests show that none of them counts as one.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import jax_backend
from tests.end_to_end.clusters import ClusterOfTests
from tests.end_to_end.runs import JAX, REPOSITORY, TINY, Run, finish, verify

pytestmark = pytest.mark.slow

STAND_INS = REPOSITORY / "tests/stand_ins"
TWO_NODES = ("--nodes=2", "--gpus=2")


@pytest.fixture(scope="module")
def cluster(cluster: ClusterOfTests) -> ClusterOfTests:
    cluster.have(jax_backend.BACKEND)
    return replace(cluster, variables={**cluster.variables, "PATH": f"{STAND_INS}:{os.environ['PATH']}"})


def on_cluster(cluster: ClusterOfTests, output_dir: Path, *flags: str, stand_in: str = "") -> Run:
    words = ("--site=dev", f"--output_dir={output_dir}", JAX, TINY, "--pgle=nsys", "--steps=12", *flags)
    process = cluster.start("run.py", *words, STAND_IN_NSYS=stand_in)
    return finish(process, output_dir)


def phases_of(run: Run) -> dict[str, int | None]:
    """The phases that were started, with their exit codes."""
    events = [json.loads(line) for line in (run.folder / "attempt-1/job.jsonl").read_text().splitlines()]
    return {event["phase"]: event.get("exit_code") for event in events if event["event"] == "phase_end"}


def starts_phases(run: Run) -> list[str]:
    return [phase["name"] for phase in json.loads((run.folder / "plan.json").read_text())["phases"]]


# --- jax's own way --------------------------------------------------------------------------------


def test_auto_over_two_nodes_marks_the_same_steps_on_every_rank(cluster: ClusterOfTests, tmp_path: Path) -> None:
    run = cluster.run(tmp_path, JAX, TINY, "--nodes=2", "--gpus=2", "--pgle=auto", "--steps=14", "--nocheck")
    assert run.code == 0, run.out + run.err
    marked = {rank: [s["step"] for s in run.steps if s["rank"] == rank and s["excluded_because"]] for rank in (0, 1)}
    assert marked == {0: list(range(8)), 1: list(range(8))}
    for rank in (0, 1):
        (pgle_event,) = [event for event in run.events(rank) if event["event"] == "pgle"]
        assert pgle_event["recompile_step"] == 3


# --- three phases ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three_phases(cluster: ClusterOfTests, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return on_cluster(cluster, tmp_path_factory.mktemp("nsys"), *TWO_NODES)


def test_three_phases_run_and_a_profile_that_nothing_has_read_is_no_result(three_phases: Run) -> None:
    run = three_phases
    assert run.code == 3, run.out + run.err
    assert phases_of(run) == {"check": 0, "profile": 0, "convert": 0, "perf": 0}
    (reason,) = run.result["reasons"]
    assert reason.startswith(
        "PGLE was not applied: XLA does not report that it read the profile in rank-0.log, rank-1.log"
    )
    profile = run.result["pgle"]["seen"]["profile"]
    assert profile["collectives"] == profile["covered"] > 0
    assert (run.folder / "attempt-1/convert/profile.pbtxt").read_text().count("costs {") == profile["instructions"]
    assert profile["made_by"]["the number of devices"] == 2
    assert {step["rank"] for step in run.steps} == {0, 1}
    assert len([step for step in run.steps if step["rank"] == 0]) == 12  # the profiled phase's are not among them
    assert not (run.folder.parent / "pgle-profiles").exists()  # it proved nothing, so it is not kept
    assert verify(str(run.folder)).returncode == 0


def test_a_conversion_that_fails_ends_the_job_and_says_why(cluster: ClusterOfTests, tmp_path: Path) -> None:
    run = on_cluster(cluster, tmp_path, "--nocheck", stand_in="empty")
    assert run.code == 1, run.out + run.err
    assert run.result["status"] == "failed"
    assert phases_of(run)["convert"] == 1
    assert "perf" not in phases_of(run)
    (reason,) = [reason for reason in run.result["reasons"] if "convert" in reason]
    assert "has no HLO instruction" in reason
    assert not run.result["pgle"]["seen"]["applied"]
    assert run.result["seconds_per_step"]["median"] is None
    assert not (run.folder / "attempt-1/convert/profile.pbtxt").exists()


def test_a_kept_profile_of_another_model_is_refused_before_the_first_step(
    cluster: ClusterOfTests, three_phases: Run, tmp_path: Path
) -> None:
    """Its key was right and its words are whole: only what it is of is not."""
    made = three_phases.folder / "attempt-1/convert"
    about = json.loads((made / "profile.json").read_text())
    about["made_by"]["base_emb_dim"] = "128"
    place = tmp_path / "pgle-profiles" / about["key"]
    place.mkdir(parents=True)
    (place / "profile.json").write_text(json.dumps(about))
    (place / "profile.pbtxt").write_bytes((made / "profile.pbtxt").read_bytes())
    run = on_cluster(cluster, tmp_path, *TWO_NODES, "--nocheck")
    assert starts_phases(run) == ["perf"]  # it was used: two phases are saved
    assert run.code == 1, run.out + run.err
    assert any("base_emb_dim" in reason for reason in run.result["reasons"]), run.result["reasons"]
    assert run.steps == []
