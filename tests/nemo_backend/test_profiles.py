"""--profile with the engines nemo and bridge: the plan, the settings, and the steps that are marked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.request.profiling import nccl_trace_environment
from benchmarks.request.resolve import ProfilerOptions
from benchmarks.values import Benchmark, Phase
from nemo_backend import BACKEND, bridge_planning

Resolve = Callable[..., Benchmark]
LORA = {"model": "llama3_70b", "task": "lora", "hardware": "gb200", "gpus": 8, "dtype": "bf16"}
PRETRAIN = {"model": "llama31_70b", "gpus": 64, "dtype": "bf16"}
BRIDGE = {"model": "llama3_70b", "engine": "bridge", "dtype": "bf16", "gpus": 64}
WEIGHTS = {"checkpoint.pretrained_checkpoint": "/checkpoints/llama3_70b"}
BRIDGE_LORA = {**BRIDGE, "task": "lora", "gpus": 8, "chosen": WEIGHTS}
EACH = pytest.mark.parametrize("request_", [LORA, PRETRAIN, BRIDGE, BRIDGE_LORA])


def phase_of(benchmark: Benchmark) -> Phase:
    (phase,) = BACKEND.plan(benchmark).phases
    return phase


def words_of(phase: Phase) -> list[str]:
    """The program's own, without the profiler's."""
    return phase.command[phase.command.index("--") + 1 :]


@EACH
def test_a_recorded_run_is_the_same_program_under_nsys_with_the_recipes_name(
    resolved: Resolve, request_: dict[str, Any]
) -> None:
    phase, bare = (phase_of(resolved(**request_, profile=profile)) for profile in ("nsys", "none"))
    lora, model = "task" in request_, str(request_["model"]).replace("_", "-")
    ranks = "0-7" if lora else "0-5,7-15"
    report = "profile_%q{SLURM_JOB_ID}_node%q{SLURM_NODEID}_rank%q{SLURM_PROCID}"
    if not lora:
        report = f"{model}-bf16_64g_%q{{SLURM_JOB_ID}}_%q{{SLURM_NODEID}}_%q{{SLURM_LOCALID}}"
    assert phase.command[: phase.command.index("--")] == [
        "{python}", "-I", "{repository}/benchmarks/inside/under_nsys.py", f"--ranks={ranks}",
        f"--output={{phase_dir}}/{report}",
    ]  # fmt: skip
    own = [word for word in words_of(phase) if not word.startswith(("--recorded", "--disturbed", "profiling."))]
    assert own == bare.command
    assert (phase.programs, bare.programs) == (["nsys"], [])
    assert phase.environment == bare.environment


def test_megatron_bridge_is_told_in_its_own_settings(resolved: Resolve) -> None:
    words = words_of(phase_of(resolved(**BRIDGE_LORA, profile="nsys")))
    found = [word for word in words if word.startswith("profiling.")]
    assert found == [
        "profiling.use_nsys_profiler=true",
        "profiling.profile_step_start=45",
        "profiling.profile_step_end=50",
        "profiling.profile_ranks=[0,1,2,3,4,5,6,7]",
    ]
    assert {word.partition("=")[0] for word in found} <= bridge_planning.settings().keys()


@EACH
def test_a_trace_of_nccl_is_variables_alone(resolved: Resolve, request_: dict[str, Any]) -> None:
    phase, bare = (phase_of(resolved(**request_, profile=profile)) for profile in ("nccl", "none"))
    assert (phase.command, phase.programs) == (bare.command, [])
    assert phase.environment == {**bare.environment, **nccl_trace_environment()}
    assert not nccl_trace_environment().keys() & bare.environment.keys()


# --- the steps ----------------------------------------------------------------------------------

LINE = (
    " [2026-04-27 00:00:{number:02d}] iteration {number:8d}/      12 | consumed samples: {number:12d} |"
    " elapsed time per iteration (ms): 4000.0 | learning rate: 1.000000E-04 | global batch size:    32 |"
    " lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations: {skipped:3d} |"
    " number of nan iterations:   0 |\n"
)


def test_the_steps_of_megatron_bridges_log_that_were_disturbed_are_marked(resolved: Resolve, tmp_path: Path) -> None:
    """A reason of Megatron's own stands."""
    lines = [LINE.format(number=number, loss=6 - number / 10, skipped=int(number == 7)) for number in range(1, 13)]
    (tmp_path / "rank-63.log").write_text("".join(lines))
    benchmark = resolved(**BRIDGE, profile="nsys", profiler=ProfilerOptions(start_step=5, stop_step=7), steps=12)
    marks = {4: "profiler", 5: "profiler", 6: "skipped iteration", 7: "profiler", 8: "profiler"}
    for steps in (BACKEND.read_phase(benchmark, tmp_path, 1).steps, BACKEND.follow(benchmark, tmp_path, 1)()):
        assert {step.step: step.excluded_because for step in steps} == {**dict.fromkeys(range(12)), **marks}
