"""--profile with the engines nemo and bridge: the plan, the settings, and the steps that are marked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import RequestError
from benchmarks.request.profiling import nccl_trace_environment
from benchmarks.values import Benchmark, Phase
from nemo_backend import BACKEND, bridge_planning
from nemo_backend.inside import worker

Resolve = Callable[..., Benchmark]
LORA = {"model": "llama3_70b", "task": "lora", "hardware": "gb200", "gpus": 8}
PRETRAIN = {"model": "llama31_70b", "gpus": 64}
BRIDGE = {"model": "llama3_70b", "engine": "bridge", "dtype": "bf16", "gpus": 64}
BRIDGE_LORA = {
    **BRIDGE,
    "task": "lora",
    "gpus": 8,
    "chosen": {"checkpoint.pretrained_checkpoint": "/checkpoints/llama3_70b"},
}


def phase_of(benchmark: Benchmark) -> Phase:
    (phase,) = BACKEND.plan(benchmark).phases
    return phase


def profiler_words(phase: Phase) -> list[str]:
    return phase.command[: phase.command.index("--")]


def program_words(phase: Phase) -> list[str]:
    return phase.command[phase.command.index("--") + 1 :]


# --- the plan -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "ranks", "report"),
    [
        (LORA, "0-7", "profile_%q{SLURM_JOB_ID}_node%q{SLURM_NODEID}_rank%q{SLURM_PROCID}"),
        (PRETRAIN, "0-5,7-15", "llama31-70b-bf16_64g_%q{SLURM_JOB_ID}_%q{SLURM_NODEID}_%q{SLURM_LOCALID}"),
        (BRIDGE, "0-5,7-15", "llama3-70b-bf16_64g_%q{SLURM_JOB_ID}_%q{SLURM_NODEID}_%q{SLURM_LOCALID}"),
        (BRIDGE_LORA, "0-7", "profile_%q{SLURM_JOB_ID}_node%q{SLURM_NODEID}_rank%q{SLURM_PROCID}"),
    ],
    ids=["lora", "pretrain", "bridge", "bridge_lora"],
)
def test_a_recorded_run_is_the_same_program_under_nsys_with_the_recipes_name(
    resolved: Resolve, request_: dict[str, Any], ranks: str, report: str
) -> None:
    request = {**request_, "dtype": "bf16"}
    phase, bare = (phase_of(resolved(**request, profile=profile)) for profile in ("nsys", "none"))
    assert profiler_words(phase) == [
        "{python}", "-I", "{repository}/benchmarks/inside/under_nsys.py", f"--ranks={ranks}",
        f"--output={{phase_dir}}/{report}",
    ]  # fmt: skip
    own = [word for word in program_words(phase) if not word.startswith(("--recorded", "--disturbed", "profiling."))]
    assert own == bare.command
    assert (phase.programs, bare.programs) == (["nsys"], [])
    assert phase.environment == bare.environment


@pytest.mark.parametrize(("request_", "steps", "disturbed"), [(LORA, "45-49", "44-50"), (PRETRAIN, "20-30", "19-31")])
def test_the_worker_is_told_the_steps_and_reads_them(
    resolved: Resolve, request_: dict[str, Any], steps: str, disturbed: str
) -> None:
    words = program_words(phase_of(resolved(**request_, profile="nsys")))
    arguments = words[words.index("{repository}/nemo_backend/inside/worker.py") + 1 :]
    options = worker.parse(arguments)
    assert (options.recorded_steps, options.disturbed_steps) == (steps, disturbed)
    assert options.recorded_ranks in ("0-7", "0-5,7-15")


@pytest.mark.parametrize("request_", [LORA, PRETRAIN, BRIDGE, BRIDGE_LORA])
def test_a_trace_of_nccl_is_variables_alone(resolved: Resolve, request_: dict[str, Any]) -> None:
    phase, bare = (phase_of(resolved(**request_, profile=profile)) for profile in ("nccl", "none"))
    assert phase.command == bare.command
    assert phase.environment == {**bare.environment, **nccl_trace_environment()}
    assert phase.programs == []
    assert not nccl_trace_environment().keys() & bare.environment.keys()


@pytest.mark.parametrize("profile", ["xplane", "nsys,nccl"])
def test_a_profiler_of_another_framework_or_two_at_once_are_refused(resolved: Resolve, profile: str) -> None:
    for request in (PRETRAIN, BRIDGE):
        with pytest.raises(RequestError):
            resolved(**request, profile=profile)


def test_a_cpu_has_no_nccl_to_trace(resolved: Resolve) -> None:
    with pytest.raises(RequestError, match="no NCCL"):
        resolved("llama3_tiny", profile="nccl")


# --- Megatron-Bridge's own settings ---------------------------------------------------------------


def test_megatron_bridge_is_told_in_its_own_settings(resolved: Resolve) -> None:
    words = program_words(phase_of(resolved(**BRIDGE_LORA, profile="nsys")))
    assert [word for word in words if word.startswith("profiling.")] == [
        "profiling.use_nsys_profiler=true",
        "profiling.profile_step_start=45",
        "profiling.profile_step_end=50",
        "profiling.profile_ranks=[0,1,2,3,4,5,6,7]",
    ]
    assert {
        word.partition("=")[0] for word in words if word.startswith("profiling.")
    } <= bridge_planning.settings().keys()


@pytest.mark.parametrize("name", ["profiling.nvtx_ranges", "profiling.record_shapes"])
def test_what_only_a_report_can_hold_needs_one(resolved: Resolve, name: str) -> None:
    benchmark = resolved(**{**BRIDGE, "chosen": {name: "true"}}, profile="nsys")
    assert f"{name}=true" in program_words(phase_of(benchmark))
    for profile in ("none", "nccl"):
        with pytest.raises(RequestError, match="but the time it takes") as refused:
            resolved(**{**BRIDGE, "chosen": {name: "true"}}, profile=profile)
        assert refused.value.next_command == "--profile=nsys"


# --- the steps ----------------------------------------------------------------------------------

LINE = (
    " [2026-04-27 00:00:{second:02d}] iteration {number:8d}/{total:8d} | consumed samples: {number:12d} |"
    " elapsed time per iteration (ms): 4000.0 | learning rate: 1.000000E-04 | global batch size:    32 |"
    " lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations: {skipped:3d} |"
    " number of nan iterations:   0 |\n"
)


def write_log(folder: Path, skipped: int | None = None) -> None:
    lines = [
        LINE.format(second=number, number=number, total=12, loss=6 - number / 10, skipped=int(number == skipped))
        for number in range(1, 13)
    ]
    (folder / "rank-63.log").write_text("".join(lines))


def test_the_steps_of_megatron_bridges_log_that_were_disturbed_are_marked(resolved: Resolve, tmp_path: Path) -> None:
    write_log(tmp_path)
    flags = {"profile": "nsys", "profile_start_step": 5, "profile_stop_step": 7, "steps": 12}
    benchmark = resolved(**BRIDGE, **flags)
    read = BACKEND.read_phase(benchmark, tmp_path, 1).steps
    followed = BACKEND.follow(benchmark, tmp_path, 1)()
    for steps in (read, followed):
        assert [step.step for step in steps] == list(range(12))
        assert [step.step for step in steps if step.excluded_because == "profiler"] == [4, 5, 6, 7, 8]
        assert {step.excluded_because for step in steps} == {None, "profiler"}


def test_a_reason_of_megatrons_own_stands(resolved: Resolve, tmp_path: Path) -> None:
    write_log(tmp_path, skipped=7)
    flags = {"profile": "nsys", "profile_start_step": 5, "profile_stop_step": 7, "steps": 12}
    steps = BACKEND.read_phase(resolved(**BRIDGE, **flags), tmp_path, 1).steps
    reasons = {step.step: step.excluded_because for step in steps}
    assert reasons[6] not in (None, "profiler")
    assert [reasons[step] for step in (4, 5, 7, 8)] == ["profiler"] * 4
