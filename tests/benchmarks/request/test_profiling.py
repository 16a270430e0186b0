"""The defaults of --profile, its refusals, and the commands that start a profiler."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.profiling import (
    ProfileDefaults,
    choose_profiling,
    not_recorded,
    parse_ranks,
    profile_defaults,
    report_name,
)
from benchmarks.text import spans_text
from benchmarks.values import Benchmark, Phase, Profiling, changed_benchmark

DEFAULTS = ProfileDefaults(ranks="0-5,7-15", start_step=20, stop_step=30, source="s", date="d")


def choose(
    kind: str = "nsys", defaults: ProfileDefaults = DEFAULTS, gpus: int = 64, steps: int = 50, **typed: Any
) -> Profiling | None:
    left = {"ranks": None, "start_step": None, "stop_step": None, "gpu_metrics": False, "cpu": False}
    return choose_profiling(kind, {**left, **typed}, defaults, gpus, steps)


def chosen(**asked: Any) -> Profiling:
    found = choose(**asked)
    assert found is not None
    return found


# --- what is recorded -----------------------------------------------------------------------------


def test_the_finetunes_last_step_is_the_runs() -> None:
    """The recipe says 45-50 of 50 and counts from 1 or past the end; a run's steps are 0 to 49."""
    found = chosen(defaults=profile_defaults(Configs(), "lora"), gpus=8)
    assert (found.start_step, found.stop_step, found.ranks) == (45, 49, list(range(8)))


def test_ranks_that_are_not_there_are_left_out_of_the_defaults_and_refused_where_typed() -> None:
    assert chosen(gpus=2).ranks == [0, 1]
    assert chosen(ranks="1,0").ranks == [0, 1]
    with pytest.raises(RequestError, match="has no rank 8"):
        chosen(gpus=8, ranks="0,8")


@pytest.mark.parametrize("typed", [{"start_step": 0}, {"start_step": 9, "stop_step": 8}, {"start_step": 50}])
def test_steps_that_cannot_be_recorded_are_refused(typed: dict[str, int]) -> None:
    with pytest.raises(RequestError, match="cannot profile steps"):
        chosen(**typed)


@pytest.mark.parametrize("kind", ["none", "nccl"])
def test_without_steps_nothing_is_chosen_and_flags_of_it_are_refused(kind: str) -> None:
    assert choose(kind) is None
    for flag in ({"ranks": "0"}, {"start_step": 3}, {"stop_step": 3}, {"gpu_metrics": True}, {"cpu": True}):
        with pytest.raises(RequestError, match="no effect"):
            choose(kind, **flag)


@pytest.mark.parametrize("text", ["", "a", "3-1", "0,,1", "-1", "1-", "0;1"])
def test_what_names_no_ranks_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="not a list of ranks"):
        parse_ranks(text)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([0], "0"), ([0, 1], "0-1"), ([0, 1, 8, 10, 11, 12], "0-1,8,10-12"), ([*range(6), *range(7, 16)], "0-5,7-15")],
)
def test_ranks_are_written_as_they_are_read(ranks: list[int], text: str) -> None:
    assert spans_text(ranks) == text
    assert parse_ranks(text) == ranks


# --- starting it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "dtype", "gpus", "name"),
    [
        ("llama31_70b", "bf16", 64, "llama31-70b-bf16_64g"),
        ("llama2_70b", "fp8", 2048, "llama2-70b-fp8_2048g"),
        ("llama3_tiny", "fp32", 1, "llama3-tiny-fp32_1g"),
        ("mine", "bf16", 8, "mine-bf16_8g"),
        ("my.model_1.5b", "bf16", 8, "my-model-1-5b-bf16_8g"),
    ],
)
def test_a_pretrainings_report_is_named_as_nvidias_recipes_name_it(
    benchmark_value: Benchmark, model: str, dtype: str, gpus: int, name: str
) -> None:
    benchmark = of(benchmark_value, model, task="pretrain", dtype=dtype, gpus=gpus)
    assert report_name(benchmark) == f"{name}_%q{{SLURM_JOB_ID}}_%q{{SLURM_NODEID}}_%q{{SLURM_LOCALID}}"


def of(benchmark: Benchmark, model: str, **changes: Any) -> Benchmark:
    named = msgspec.structs.replace(benchmark.model, name=model)
    return msgspec.structs.replace(benchmark, model=named, **changes)


# --- what must be there in the end ----------------------------------------------------------------


def measured(tasks: int = 4) -> Phase:
    return Phase(
        name="perf", command=[], environment={}, nodes=1, tasks_per_node=tasks, devices_per_task=1, writes_steps=True
    )


def profiled(benchmark: Benchmark, kind: str, ranks: list[int]) -> Benchmark:
    recorded = Profiling(ranks=ranks, start_step=20, stop_step=30) if kind != "nccl" else None
    return changed_benchmark(benchmark, profile=kind, profiling=recorded)


@pytest.mark.parametrize(
    ("kind", "files", "missing"),
    [
        ("nsys", ["a_0.nsys-rep", "a_1.nsys-rep"], ""),
        ("nsys", ["a_0.nsys-rep"], "1 of 2 *.nsys-rep in perf"),
        ("nsys", [], "0 of 2 *.nsys-rep in perf"),
        ("xplane", ["maxtext/x/plugins/profile/now/host.xplane.pb"], ""),
        ("xplane", ["host.trace.json.gz"], "0 of 1 *.xplane.pb in perf"),
        ("nccl", ["nccl-node1-7.log"], ""),
        ("nccl", ["rank-0.log"], "0 of 1 nccl-*.log in perf"),
    ],
)
def test_a_missing_profile_is_noted(
    benchmark_value: Benchmark, tmp_path: Path, kind: str, files: list[str], missing: str
) -> None:
    """Ranks that the run does not have are not awaited, such as rank 9 of four."""
    for name in files:
        path = tmp_path / "perf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("recorded")
    (tmp_path / "perf").mkdir(exist_ok=True)
    (tmp_path / "perf/empty.nsys-rep").touch()  # a file without a byte holds nothing
    found = not_recorded(profiled(benchmark_value, kind, [0, 1, 9]), measured(), tmp_path / "perf")
    assert [missing in reason for reason in found] == ([True] if missing else [])


def test_a_run_of_which_no_step_would_be_left_is_refused() -> None:
    with pytest.raises(RequestError, match="cannot profile steps") as caught:
        chosen(steps=4)
    assert caught.value.next_command == "--steps=8"
