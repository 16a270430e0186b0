"""Chooses the ranks and steps that --profile records, and the commands that run a phase under a profiler. No I/O."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.configs import Configs, read_yaml, refuse_unknown
from benchmarks.errors import RequestError
from benchmarks.text import spans_text
from benchmarks.values import Benchmark, Phase, Profiling, Value

WITH_STEPS = ("nsys", "xplane")  # profilers that record a range of steps; an NCCL trace covers the whole run


class ProfileDefaults(Value, frozen=True):
    """The ranks and steps that NVIDIA's recipes record for a task."""

    ranks: str  # such as 0-8
    start_step: int
    stop_step: int
    source: str
    date: str


class ProfileTable(Value, frozen=True):
    """The contents of configs/profiles.yml."""

    tasks: dict[str, ProfileDefaults]


def profile_defaults(configs: Configs, task: str) -> ProfileDefaults:
    """Return the defaults in configs/profiles.yml for a task."""
    path = configs.root / "profiles.yml"
    table: ProfileTable = configs.compute_once(path, lambda: read_yaml(path, ProfileTable))
    refuse_unknown([task], list(table.tasks), f"{path}: tasks")
    return table.tasks[task]


def choose_profiling(
    kind: str, typed: Mapping[str, Any], defaults: ProfileDefaults, gpus: int, steps: int
) -> Profiling | None:
    """Return the ranks and steps to record; None if no profiler runs.

    `typed` has ranks, start_step, stop_step, gpu_metrics and cpu from the flags; None means the default.
    """
    _refuse_without_effect(kind, typed)
    if kind not in WITH_STEPS:
        return None
    start, stop, ranks_typed = typed["start_step"], typed["stop_step"], typed["ranks"]
    start = start if start is not None else min(defaults.start_step, max(1, steps - 2))
    stop = stop if stop is not None else max(start, min(defaults.stop_step, steps - 1))
    if start < 1 or stop < start or start >= steps or (start <= 2 and stop >= steps - 2):
        cure = f"--steps={stop + 5}" if 1 <= start <= stop else "--profile_start_step= --profile_stop_step="
        raise RequestError(
            f"a run of {steps} steps cannot profile steps {start} to {stop}",
            where=f"--profile_start_step={start} --profile_stop_step={stop} --steps={steps}",
            why=f"step 0 compiles, and some steps must stay unprofiled; choose from 1 to {steps - 1}",
            next_command=cure,
        )
    ranks = parse_ranks(defaults.ranks if ranks_typed is None else ranks_typed)
    there = [rank for rank in ranks if rank < gpus]
    if ranks_typed is not None and there != ranks:
        what, cure = f"the run has no rank {ranks[-1]}", f"--profile_ranks=0-{gpus - 1}"
        raise RequestError(what, where=f"--profile_ranks={ranks_typed}", next_command=cure)
    settings = {"ranks": there, "start_step": start, "stop_step": min(stop, steps - 1)}
    return Profiling(**{**typed, **settings})


def parse_ranks(text: str) -> list[int]:
    """Return the ranks in a list of numbers and ranges: 0,1,8-10 -> [0, 1, 8, 9, 10]."""
    found: set[int] = set()
    for word in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})(?:-([0-9]{1,6}))?\s*", word)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            why = "separate numbers and ranges with commas, such as --profile_ranks=0,1,8-15"
            raise RequestError(f"'{text}' is not a list of ranks", where="--profile_ranks", why=why)
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(found)


def _refuse_without_effect(kind: str, typed: Mapping[str, Any]) -> None:
    """Refuse a flag that this profiler ignores, because the user expects an effect."""
    for name, value in typed.items():
        kinds = ("nsys",) if isinstance(value, bool) else WITH_STEPS
        if value is not None and value is not False and kind not in kinds:
            what = f"--profile_{name} has no effect with --profile={kind}"
            raise RequestError(what, where=f"--profile_{name}", next_command=f"--profile={kinds[0]}")


# --- the expected files ---------------------------------------------------------------------------

LEFT_BY = {"nsys": "*.nsys-rep", "xplane": "*.xplane.pb", "nccl": "nccl-*.log"}


def not_recorded(benchmark: Benchmark, measured: Phase, phase_dir: Path) -> list[str]:
    """Return why a run with --profile has no profile. A profiler can fail silently while the run continues."""
    kind, profiling = benchmark.instruments.profile, benchmark.instruments.profiling
    pattern = LEFT_BY.get(kind)
    if pattern is None:
        return []
    found = [path for path in phase_dir.rglob(pattern) if path.is_file() and path.stat().st_size]
    ranks = profiling.ranks if profiling else []
    wanted = sum(rank < measured.tasks for rank in ranks) if kind == "nsys" else 1
    if len(found) >= wanted:
        return []
    return [
        f"--profile={kind}: the profiler wrote {len(found)} of {wanted} {pattern} in {phase_dir.name}; "
        "the log of a rank without a file gives the reason"
    ]


# --- running under a profiler -------------------------------------------------------------------


def under_nsys(profiling: Profiling, output: str, command: list[str], *, on_gpu: bool) -> list[str]:
    """Return a phase's command that runs the recorded ranks under nsys and all other ranks unchanged.

    `output` is the report's path without extension, usually `{phase_dir}/` and a report_name. nsys records from the
    program's cudaProfilerStart to its cudaProfilerStop; without CUDA, it records the whole run.
    """
    return [
        "{python}",
        "-I",  # so that files next to the program cannot replace modules of the standard library
        "{repository}/benchmarks/inside/under_nsys.py",
        f"--ranks={spans_text(profiling.ranks)}",
        f"--output={output}",
        *(["--gpu_metrics"] if profiling.gpu_metrics else []),
        *(["--cpu"] if profiling.cpu else []),
        *([] if on_gpu else ["--whole_run"]),
        "--",
        *command,
    ]


def report_name(benchmark: Benchmark, suffix: str = "") -> str:
    """Return the name of a rank's report, as in NVIDIA's recipes, without extension. under_nsys.py fills in %q{...}.

    The name has no dots, because jax's converter treats everything after the first dot as the extension.
    """
    if benchmark.task != "pretrain":
        return f"profile_%q{{SLURM_JOB_ID}}_node%q{{SLURM_NODEID}}_rank%q{{SLURM_PROCID}}{suffix}"
    model, _, size = re.sub(r"[^A-Za-z0-9_-]", "-", benchmark.model.name).rpartition("_")
    name = f"{model}-{size}" if model else size
    return (
        f"{name}-{benchmark.dtype}_{benchmark.gpus}g"
        f"_%q{{SLURM_JOB_ID}}_%q{{SLURM_NODEID}}_%q{{SLURM_LOCALID}}{suffix}"
    )


def disturbed_steps(profiling: Profiling) -> range:
    """Return the recorded steps and one step on each side, because starting and stopping a profiler takes time."""
    return range(profiling.start_step - 1, profiling.stop_step + 2)


def nccl_trace_environment() -> dict[str, str]:
    """Return the variables that make NCCL log every call with its kind, size and communicator, one file per process.

    COLL logs one line per call, including Send and Recv. INIT logs which rank of which communicator a process is.
    NVIDIA's recipes use P2P and NET instead of INIT, which log transports instead of calls. NCCL fills in %h and %p.
    """
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,COLL",
        "NCCL_DEBUG_FILE": "{phase_dir}/nccl-%h-%p.log",
    }
