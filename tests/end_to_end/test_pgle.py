"""Profile-guided latency estimation on the real MaxText: jax's own way, and the three phases on a real Slurm.

No Nsight Systems is here, and no GPU whose compiler would read a profile: tests/stand_ins/nsys is run in its place,
and no run of these can be a valid PGLE result. What is shown is that none of them is taken for one.
"""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import jax_backend
from benchmarks.configs import Configs
from benchmarks.request.resolve import Request, resolve
from launch.running import local
from tests.end_to_end.clusters import ClusterOfTests
from tests.end_to_end.runs import JAX, REPOSITORY, TINY, Run, Start, finish, verify

pytestmark = pytest.mark.slow

STAND_INS = REPOSITORY / "tests/stand_ins"
TWO_NODES = ("--nodes=2", "--gpus=2", "--pgle=nsys", "--steps=12")
PERSISTENT_MISS = "has no program that was compiled with a profile"


@pytest.fixture(scope="module")
def cluster(cluster: ClusterOfTests) -> ClusterOfTests:
    cluster.have(jax_backend.BACKEND)
    return replace(cluster, variables={**cluster.variables, "PATH": f"{STAND_INS}:{os.environ['PATH']}"})


def on_cluster(cluster: ClusterOfTests, output_dir: Path, stand_in: str = "", check: str = "--nocheck") -> Run:
    words = ("--site=dev", f"--output_dir={output_dir}", JAX, TINY, *TWO_NODES, check)
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
        (told,) = [event for event in run.events(rank) if event["event"] == "pgle"]
        assert told["recompile_step"] == 3


def test_beside_nsys_the_cache_that_holds_no_profile_is_caught(start: Start, tmp_path: Path) -> None:
    """Two phases; on a CPU jax keeps what it compiled with an empty profile as if it had none, and warns of it."""
    path = f"{STAND_INS}:{os.environ['PATH']}"
    run = finish(start(tmp_path, JAX, TINY, "--pgle=auto", "--profile=nsys", PATH=path), tmp_path)
    assert run.code == 3, run.out + run.err
    assert starts_phases(run) == ["fill", "perf"]
    (reason,) = run.result["reasons"]
    assert reason.startswith("pgle: not applied: rank-0.log")
    assert PERSISTENT_MISS in reason
    assert run.result["not_comparable"] != []
    assert list((run.folder / "attempt-1/perf").glob("*.nsys-rep"))


PRETEND = """
import runpy, sys
from jax._src import profiler
name = b"all-gather-start.1"
cost = b"\\n" + bytes([len(name)]) + name + b"\\x11" + bytes(6) + b"\\xf0?"  # ProfiledInstructionsProto: 1 us

class Pretend:
    def __getattr__(self, other):
        return getattr(original, other)

    def get_fdo_profile(self, _trace):
        return b"\\n" + bytes([len(cost)]) + cost

original, profiler._profiler = profiler._profiler, Pretend()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_program_that_comes_from_the_cache_is_proven(jax_python: Path, tmp_path: Path) -> None:
    """The two phases as planned; in the first, jax is made to believe that a CPU's trace had a cost in it."""
    request = Request(backend="jax", model="llama2_tiny", pgle="auto", profile="nsys", steps=20)
    benchmark = resolve(request, Configs(), jax_backend.BACKEND)
    plan = {phase.name: phase for phase in jax_backend.BACKEND.plan(benchmark).phases}
    for name in ("fill", "perf"):
        phase_dir = tmp_path / "attempt-1" / name
        phase_dir.mkdir(parents=True)
        where = local.places(jax_python, phase_dir)
        words = [local.fill(word, where) for word in plan[name].command]
        worker = words[[word.endswith("jax_backend/inside/worker.py") for word in words].index(True) :]
        command = [str(jax_python), "-P", *(["-c", PRETEND] if name == "fill" else []), *worker]
        variables = {key: local.fill(value, where) for key, value in plan[name].environment.items()}
        with (phase_dir / "rank-0.log").open("wb") as log:
            environment = {**local.inherited_environment(), **variables}
            subprocess.run(command, env=environment, stdout=log, stderr=log, cwd=phase_dir, check=True, timeout=300)
    fill, perf = (jax_backend.BACKEND.read_phase(benchmark, tmp_path / "attempt-1" / name, 1) for name in plan)
    assert json.loads((tmp_path / "attempt-1/fill/events-rank0.jsonl").read_text().splitlines()[-2])["applied"]
    assert fill.pgle is None  # it is not the measured one
    assert perf.pgle is not None
    assert perf.pgle.applied, perf.pgle
    assert "every rank took the program from the cache" in perf.pgle.reason


# --- three phases ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three_phases(cluster: ClusterOfTests, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return on_cluster(cluster, tmp_path_factory.mktemp("nsys"), check="--check")


def test_three_phases_run_and_a_profile_that_nothing_has_read_is_no_result(three_phases: Run) -> None:
    run = three_phases
    assert run.code == 3, run.out + run.err
    assert phases_of(run) == {"check": 0, "profile": 0, "convert": 0, "perf": 0}
    (reason,) = run.result["reasons"]
    assert reason.startswith(
        "pgle: not applied: no word of XLA that it has read the profile in rank-0.log, rank-1.log"
    )
    profile = run.result["pgle"]["seen"]["profile"]
    assert profile["collectives"] == profile["covered"] > 0
    assert (run.folder / "attempt-1/convert/profile.pbtxt").read_text().count("costs {") == profile["instructions"]
    assert profile["made_by"]["devices"] == 2
    assert {step["rank"] for step in run.steps} == {0, 1}
    assert len([step for step in run.steps if step["rank"] == 0]) == 12  # the profiled phase's are not among them
    assert not (run.folder.parent / "pgle-profiles").exists()  # it proved nothing, so it is not kept
    assert verify(str(run.folder)).returncode == 0


def test_a_conversion_that_fails_ends_the_job_and_says_why(cluster: ClusterOfTests, tmp_path: Path) -> None:
    run = on_cluster(cluster, tmp_path, "empty")
    assert run.code == 1, run.out + run.err
    assert run.result["status"] == "failed"
    assert phases_of(run)["convert"] == 1
    assert "perf" not in phases_of(run)
    (reason,) = [reason for reason in run.result["reasons"] if "convert" in reason]
    assert "has no row: no kernel ran while it recorded" in reason
    assert not run.result["pgle"]["seen"]["applied"]
    assert run.result["seconds_per_step"]["median"] is None
    assert not (run.folder / "attempt-1/convert/profile.pbtxt").exists()


def test_a_kept_profile_of_another_model_is_refused_before_the_first_step(
    cluster: ClusterOfTests, three_phases: Run, tmp_path: Path
) -> None:
    """Its key was right and its words are whole: only what it is of is not."""
    made = three_phases.folder / "attempt-1/convert"
    about = json.loads((made / "profile.json").read_text())
    about["made_by"]["settings"]["base_emb_dim"] = "128"
    place = tmp_path / "pgle-profiles" / about["key"]
    place.mkdir(parents=True)
    (place / "profile.json").write_text(json.dumps(about))
    (place / "profile.pbtxt").write_bytes((made / "profile.pbtxt").read_bytes())
    run = on_cluster(cluster, tmp_path)
    assert starts_phases(run) == ["perf"]  # it was taken: two phases are saved
    assert run.code == 1, run.out + run.err
    assert any("base_emb_dim" in reason for reason in run.result["reasons"]), run.result["reasons"]
    assert run.steps == []
