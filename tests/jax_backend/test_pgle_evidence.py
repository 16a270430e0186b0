"""The evidence that a profile was applied. The lines are XLA's and jax's own (gpu_hlo_schedule.cc, compiler.py)."""

import hashlib
from pathlib import Path

import pytest

from benchmarks.values import Benchmark, PgleProfile, PgleSeen, RunRecord, Step, changed_benchmark, json_text
from jax_backend.pgle_evidence import evidence_of
from tests.jax_backend.asked import resolved

READ = "I0000 00:00:01.5 7 gpu_hlo_schedule.cc:567] Using PGLE profile from /runs/attempt-1/convert/profile.pbtxt\n"
PROGRAM = """HloModule jit_train_step, is_scheduled=true, num_partitions=8

ENTRY %main (p: f32[8]) -> f32[64] {
  %p = f32[8]{0} parameter(0)
  %all-gather-start.1 = (f32[8], f32[64]) all-gather-start(%p), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  ROOT %all-gather-done.1 = f32[64]{0} all-gather-done(%all-gather-start.1)
}
"""
COSTS = 'costs { name: "all-gather-start.1" cost_us: 7040.5 }\ncosts { name: "fusion.1" cost_us: 3.5 }\n'


RANKS = 2


def benchmark_of(**wanted: str) -> Benchmark:
    """Over two processes of one GPU each."""
    return resolved(hardware="h100", gpus=RANKS, dtype="bf16", **wanted)


@pytest.fixture
def phase_dir(tmp_path: Path) -> Path:
    """A run whose two ranks have read a whole profile of the program that they measured."""
    perf, convert = tmp_path / "attempt-1/perf", tmp_path / "attempt-1/convert"
    (perf / "hlo").mkdir(parents=True)
    convert.mkdir()
    (perf / "hlo/module_0001.jit_train_step.sm_9.0_gpu_after_optimizations.txt").write_text(PROGRAM)
    for rank in (0, 1):
        (perf / f"rank-{rank}.log").write_text(f"hello\n{READ}bye\n")
    write_profile(convert, COSTS)
    return perf


def write_profile(place: Path, costs: str) -> None:
    digest = hashlib.sha256(costs.encode()).hexdigest()
    profile = PgleProfile(key="k" * 32, sha256=digest, instructions=2, collectives=1, covered=1, made_by={})
    (place / "profile.pbtxt").write_text(costs)
    (place / "profile.json").write_text(json_text(profile))


def record(*watched: PgleSeen) -> RunRecord:
    steps = [Step(step=0, seconds=1.0, loss=1.0, tokens=None)]
    by_rank = dict(enumerate(watched))
    return RunRecord(attempt=1, facts=[], steps=steps, ends=[], unreadable=[], watched=by_rank)


def test_a_profile_that_every_rank_has_read_is_applied(phase_dir: Path) -> None:
    found = evidence_of(benchmark_of(pgle="nsys"), phase_dir, record())
    assert found == PgleSeen(
        applied=True,
        reason="every rank read the profile of 2 instructions (key kkkkkkkkkkkk, recorded in this run); "
        "1 of 1 collectives of the measured program have a cost",
        collectives=1,
        covered=1,
        profile=found.profile,
    )
    assert found.profile.key == "k" * 32


OTHER = "I gpu_hlo_schedule.cc:567] Using PGLE profile from "
DUMP = "hlo/module_0001.jit_train_step.sm_9.0_gpu_after_optimizations.txt"


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("rank-1.log", "hello\nbye\n", "read the profile in rank-1.log (XLA"),
        ("rank-1.log", f"{OTHER}/tmp/other.pb\n", "read the profile in rank-1.log"),
        ("rank-1.log", f"{OTHER}/x/profile.pbtxt\n", "in rank-1.log ("),
        ("rank-1.log", None, "in rank-1.log ("),
        (DUMP, None, "the measured program was not saved"),
    ],
)
def test_what_leaves_it_unproven(phase_dir: Path, file: str, text: str | None, words: str) -> None:
    path = (phase_dir / file).resolve()
    path.write_text(text) if text is not None else path.unlink()
    assert_unproven(evidence_of(benchmark_of(pgle="nsys"), phase_dir, record()), words)


def assert_unproven(found: PgleSeen | None, words: str) -> None:
    assert found is not None
    assert not found.applied
    assert words in found.reason


def test_costs_of_other_collectives_are_of_little_use(phase_dir: Path) -> None:
    write_profile(phase_dir / "../convert", COSTS.replace("all-gather-start.1", "all-gather-start.7"))
    words = "0 of 1 collectives of the measured program have a cost (not: all-gather-start.1)"
    assert_unproven(evidence_of(benchmark_of(pgle="nsys"), phase_dir, record()), words)


def test_on_a_cpu_no_log_makes_it_true(phase_dir: Path) -> None:
    on_cpu = resolved(gpus=2, nodes=2, pgle="nsys")
    assert_unproven(evidence_of(on_cpu, phase_dir, record()), "the CPU compiler ignores profiles")


def test_a_kept_profile_lies_in_the_runs_folder(phase_dir: Path) -> None:
    (phase_dir / "../convert").resolve().rename(phase_dir.parents[1] / "pgle")
    for rank in range(RANKS):
        (phase_dir / f"rank-{rank}.log").write_text(READ.replace("attempt-1/convert", "attempt-1/perf/../../pgle"))
    found = evidence_of(changed_benchmark(benchmark_of(pgle="nsys"), pgle_profile="k" * 32), phase_dir, record())
    assert found is not None
    assert found.applied


OWN = PgleSeen(applied=True, reason="jax profiled 3 steps", recompile_step=3)
EMPTY = PgleSeen(applied=False, reason="every trace was empty", recompile_step=3, empty_traces=3)


@pytest.mark.parametrize(
    ("watched", "words"),
    [
        ((OWN,), "did not report PGLE: 1"),
        ((OWN, EMPTY), "rank 1: every trace was empty"),
        ((EMPTY, EMPTY), "every trace was empty"),
        ((OWN, OWN), "does not report in rank-1.log"),
    ],
)
def test_one_rank_that_schedules_otherwise_is_enough_against_it(
    phase_dir: Path, watched: tuple[PgleSeen, ...], words: str
) -> None:
    assert evidence_of(benchmark_of(pgle="auto"), phase_dir, record(OWN, OWN)) == OWN
    (phase_dir / "rank-0.log").write_text("Found profile, using profile guided latency estimator\n")
    (phase_dir / "rank-1.log").write_text("nothing\n")
    assert_unproven(evidence_of(benchmark_of(pgle="auto"), phase_dir, record(*watched)), words)
