"""The phases that --pgle and --profile make of a MaxText run, and the keys by which profiles are told apart.

Whole jobs are in tests/launch/slurm/golden_jobs (pgle_*); here stands what the recipe says, number by number.
"""

import re
from typing import Any

import pytest

from benchmarks.request.resolve import ProfilerOptions
from benchmarks.values import Phase, changed_benchmark
from jax_backend import BACKEND
from jax_backend.phases import PGLE_PROFILE
from tests.jax_backend.asked import each, flags_of, phases, refusal, resolved, settings_of


def big(**wanted: Any) -> dict[str, Phase]:
    return phases("llama2_70b", **{"dtype": "bf16", "gpus": 64, **wanted})


# --- the recipe -------------------------------------------------------------------------------------


def test_the_profile_phase_differs_by_what_the_recipe_says_and_by_nothing_else() -> None:
    found = big(pgle="nsys")
    profile, perf = flags_of(found["profile"]), flags_of(found["perf"])
    differing = {name for name in profile | perf if profile.get(name) != perf.get(name)}
    scheduler = "xla_gpu_enable_latency_hiding_scheduler"
    assert differing == {scheduler, "xla_gpu_disable_async_collectives", PGLE_PROFILE}
    assert (profile[scheduler], perf[scheduler]) == ("false", "true")
    assert perf[PGLE_PROFILE] == "{phase_dir}/../convert/profile.pbtxt"
    own, other = settings_of(found["profile"].command), settings_of(found["perf"].command)
    differing = {name for name in own | other if own.get(name) != other.get(name)}
    assert {name: own[name] for name in sorted(differing)} == {
        "profiler": "nsys",
        "profiler_steps": "3",
        "skip_first_n_steps_for_profiler": "9",
        "steps": "15",
        "upload_all_profiler_results": "false",
    }
    assert other["steps"] == "50"
    assert found["perf"].environment["TF_CPP_VMODULE"] == "profile_guided_latency_estimator=10"
    assert found["perf"].environment["TF_CPP_MIN_LOG_LEVEL"] == "0"
    for phase in (found["profile"], found["perf"]):
        assert phase.environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.94"


def test_the_check_is_the_measured_worker_that_knows_the_flags_and_programs_of_all_phases() -> None:
    benchmark = resolved("llama2_70b", gpus=64, pgle="nsys", profile="xplane")
    found, perf = BACKEND.check_phase(benchmark), BACKEND.plan(benchmark).phases[-1]
    assert (found.name, found.nodes, found.tasks, found.devices_per_task) == ("check", 1, 1, 8)
    ours = found.command.index("--") + 1
    assert found.command[:ours] == ["bash", "{repository}/launch/slurm/first_check.sh", "nsys", "--"]
    assert [word for word in found.command[ours:] if word != "--check"] == perf.command
    assert found.command.index("--check") < found.command.index("--", ours)
    flags = flags_of(found)
    assert flags["xla_gpu_disable_async_collectives"]  # the profile phase's alone
    assert PGLE_PROFILE not in flags  # there is no such file yet
    assert set(flags_of(perf)) <= {*flags, PGLE_PROFILE}


# --- jax's own way, and profiles ----------------------------------------------------------------------


def test_auto_is_one_phase_that_is_watched() -> None:
    found = phases(pgle="auto")
    assert list(found) == ["perf"]
    assert {"--pgle_runs=3", "--pgle_settling=4"} <= set(found["perf"].command)
    assert found["perf"].environment["JAX_ENABLE_PGLE"] == "true"
    assert found["perf"].environment["JAX_PGLE_PROFILING_RUNS"] == "3"
    assert not [name for name in phases()["perf"].environment if "PGLE" in name]


@pytest.mark.parametrize("kind", ["xplane", "nsys"])
def test_the_recorded_steps_are_told_to_maxtext_and_their_neighbours_left_out(kind: str) -> None:
    perf = phases(profile=kind, profiler=ProfilerOptions(start_step=30, stop_step=34))["perf"]
    settings = settings_of(perf.command)
    assert (settings["profiler"], settings["skip_first_n_steps_for_profiler"], settings["profiler_steps"]) == (
        kind, "30", "5",
    )  # fmt: skip
    assert "--disturbed_steps=29-35" in perf.command
    assert ("benchmarks/inside/under_nsys.py" in " ".join(perf.command)) == (kind == "nsys")


@each("refusals_of_phases", "asked", "next")
def test_what_cannot_work_is_refused(asked: dict[str, Any], next: str) -> None:
    profiler = ProfilerOptions(**asked.get("profiler", {}))
    assert refusal(**{**asked, "profiler": profiler}).next_command == next


def test_a_group_of_flags_goes_between_the_recipe_and_single_flags() -> None:
    settings = {"xla_group": "hopper_baseline", "xla_gpu_enable_pipelined_all_reduce": "false"}
    found = resolved("llama2_70b", settings, dtype="bf16", gpus=64)
    assert found.settings.xla_flags["xla_gpu_reduce_scatter_combine_threshold_bytes"] == "134217728"
    assert found.settings.xla_flags["xla_gpu_enable_pipelined_all_reduce"] == "false"
    assert found.settings.environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.90"
    assert "xla_group" not in found.settings.xla_flags


# --- keys -------------------------------------------------------------------------------------------


def key(model: str = "llama2_70b", **wanted: Any) -> str | None:
    return BACKEND.profile_key(resolved(model, **{"dtype": "bf16", "gpus": 64, "pgle": "nsys", **wanted}))


def test_a_key_is_of_the_program_and_not_of_how_long_it_runs() -> None:
    assert key() == key(steps=200) == key(profile="nsys") == key(window="35-44")
    assert re.fullmatch("[0-9a-f]{32}", key() or "")
    assert key(pgle="auto") is None
    assert key(pgle="off") is None


def test_whatever_changes_the_program_changes_the_key() -> None:
    settings = [
        {"sequence_length": "2048"}, {"remat_policy": "full"}, {"xla_gpu_enable_triton_gemm": "true"},
        {"env.NVTE_FUSED_ATTN": "0"}, {"micro_batch_size": "1"},
    ]  # fmt: skip
    others = [key(dtype="fp8"), key(gpus=128), key(site="example_pyxis"), key("llama2_tiny", gpus=8)]
    others += [key(chosen=chosen) for chosen in settings]
    assert len({key(), *others}) == len(others) + 1


def test_a_kept_profile_saves_two_phases() -> None:
    benchmark = changed_benchmark(resolved("llama2_70b", gpus=64, pgle="nsys"), pgle_profile="0" * 32)
    found = {phase.name: phase for phase in BACKEND.plan(benchmark).phases}
    assert list(found) == ["perf"]
    assert flags_of(found["perf"])[PGLE_PROFILE] == "{phase_dir}/../../pgle/profile.pbtxt"
    assert "--pgle_profile={phase_dir}/../../pgle/profile.json" in found["perf"].command


def test_a_rank_that_is_not_the_first_is_recorded_by_maxtext_too() -> None:
    perf = big(profile="nsys", profiler=ProfilerOptions(ranks="8"))["perf"]
    assert settings_of(perf.command)["upload_all_profiler_results"] == "true"
    assert "--recorded_ranks=8" in perf.command
