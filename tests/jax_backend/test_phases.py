"""The phases that --pgle and --profile make of a MaxText run, and the keys that identify profiles.

Whole jobs are in tests/launch/slurm/golden_jobs (pgle_*); here are the numbers of the recipe.
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


def test_the_check_knows_the_flags_of_all_phases_and_no_profile() -> None:
    found = BACKEND.check_phase(resolved("llama2_70b", gpus=64, pgle="nsys"))
    assert (found.name, found.nodes, found.tasks, found.devices_per_task) == ("check", 1, 1, 8)
    assert "xla_gpu_disable_async_collectives" in flags_of(found)  # only in the profile phase
    assert PGLE_PROFILE not in flags_of(found)  # there is no such file yet


# --- jax's own way, and profiles ----------------------------------------------------------------------


def test_auto_is_one_phase_that_is_watched() -> None:
    found = phases(pgle="auto")
    assert list(found) == ["perf"]
    assert {"--pgle_runs=3", "--pgle_settling=4"} <= set(found["perf"].command)
    assert found["perf"].environment["JAX_ENABLE_PGLE"] == "true"
    assert found["perf"].environment["JAX_PGLE_PROFILING_RUNS"] == "3"
    assert not [name for name in phases()["perf"].environment if "PGLE" in name]


@pytest.mark.parametrize("kind", ["xplane", "nsys"])
def test_maxtext_gets_the_recorded_steps_and_their_neighbours_are_excluded(kind: str) -> None:
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
