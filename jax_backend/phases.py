"""Plan the phases of a MaxText run: the measured phase, and the phases that --pgle adds before it.

`--pgle=nsys` follows NVIDIA's recipe. The first phase trains under Nsight Systems without the latency hiding
scheduler. The second phase converts the report to the cost of each instruction. In the measured phase, XLA's
scheduler reads these costs. If an earlier run has stored a profile of the same program, Stepmark copies it to the
run's folder and omits the first two phases.

`--pgle=auto` uses jax's own PGLE: jax profiles the first steps and then compiles again. Nsight Systems cannot run at
the same time, because it and jax both need the GPU's profiling interface.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.backend import FlagGroup
from benchmarks.errors import RequestError
from benchmarks.request.framework import program, slowdown_option
from benchmarks.request.settings import PGLE_PROFILE
from benchmarks.text import spans_text
from benchmarks.values import Benchmark, Phase, Plan, Profiling, Scalar
from jax_backend import planning

LOCK = Path(__file__).with_name("requirements.lock")
CUDA_LOCK = Path(__file__).with_name("requirements-cuda.lock")
# The nightly build of MaxText's main branch that NVIDIA recommends for MaxText on GPUs (September 2026,
# developer.nvidia.com/blog/accelerating-dropless-moe-training-in-jax-with-nvidia-transformer-engine), for amd64 and
# arm64. The worker needs MaxText 0.2.4 or later; NGC's monthly images up to 26.06 have older versions. The image was
# not tested, because that needs a registry and a GPU. The check phase of a job reports missing parts of an image.
IMAGE = "ghcr.io/nvidia/jax:maxtext-2026-09-10"

MEASURED = "perf"
PROFILE = "profile"
CONVERT = "convert"

# As in NVIDIA's recipe, the profile phase runs this number of steps, and nsys records the steps in RECORDED.
PROFILED_STEPS = 15
# MaxText starts and stops CUDA's profiler only on rank 0.
RECORDED = Profiling(ranks=[0], start_step=9, stop_step=11)

GROUPS = {  # --pgle -> groups in configs/xla_flags.yml
    "nsys": ("pgle_profile", "pgle_perf"),
    "auto": ("pgle_auto",),
}
PROFILE_FILE = "profile.pbtxt"
MADE_HERE = "{phase_dir}/../" + CONVERT
MADE_BEFORE = "{phase_dir}/../../pgle"  # the copy of an earlier run's profile, in the run's folder

# For --pgle=auto, jax profiles steps 0 to 2 and compiles in step 3, which may also slow the next steps.
PROFILING_RUNS = 3
SETTLING_STEPS = 4
FEWEST_STEPS = PROFILING_RUNS + 1 + SETTLING_STEPS + 2  # two steps to measure


class WorkerOptions(NamedTuple):
    """The options of a phase's worker, in addition to the benchmark's settings."""

    options: list[str]
    changed: dict[str, Scalar] = {}  # settings of MaxText
    flags: dict[str, str] = {}  # flags of XLA
    variables: dict[str, str] = {}


def plan(benchmark: Benchmark) -> Plan:
    before = []
    if benchmark.instruments.pgle == "nsys" and not benchmark.instruments.pgle_profile:
        group = _flag_group("pgle_profile")
        changed = _recording(RECORDED, "nsys") | {"steps": PROFILED_STEPS}
        extra = WorkerOptions(["--hlo_dir={phase_dir}/hlo"], changed, group.flags, group.environment)
        before = [_training(benchmark, PROFILE, extra, RECORDED, "-prof"), _convert(benchmark)]
    recorded = _of_processes(benchmark) if benchmark.instruments.profile == "nsys" else None
    suffix = "-perf" if benchmark.instruments.pgle != "off" else ""
    measured = _training(benchmark, MEASURED, _measured_options(benchmark), recorded, suffix)
    return Plan(backend="jax", environment_name=planning.ENVIRONMENT_NAME, phases=[*before, measured])


def check_phase(benchmark: Benchmark) -> Phase:
    """Return the check phase: the measured phase's worker with --check, and with the XLA flags of all phases."""
    phases, extra = plan(benchmark).phases, _measured_options(benchmark)
    group = _flag_group("pgle_profile").flags if any(phase.name == PROFILE for phase in phases) else {}
    flags = {name: value for name, value in {**group, **extra.flags}.items() if name != PGLE_PROFILE}
    from benchmarks.runs import first_check

    return first_check.check_phase(
        phases[-1],
        first_check.with_option(planning.worker_command(benchmark, extra.options, extra.changed)),
        planning.environment(benchmark, flags, extra.variables),
        [program for phase in phases for program in phase.programs],
    )


def _flag_group(name: str) -> FlagGroup:
    from jax_backend import xla_flags  # only some runs need it

    return xla_flags.group(name)


def profile_folder(benchmark: Benchmark) -> str:
    return MADE_BEFORE if benchmark.instruments.pgle_profile else MADE_HERE


def _convert(benchmark: Benchmark) -> Phase:
    return Phase(
        name=CONVERT,
        command=program(
            "jax_backend/inside/convert_profile.py",
            "--profile_dir={phase_dir}/../" + PROFILE,
            "--events_dir={phase_dir}",
            f"--key={profile_key(benchmark)}",
        ),
        environment={"PYTHONUNBUFFERED": "1"},
        nodes=1,
        tasks_per_node=1,
        devices_per_task=0,
        writes_steps=False,
        programs=["nsys"],
    )


def _measured_options(benchmark: Benchmark) -> WorkerOptions:
    """Return the options of the measured phase for --pgle, --profile and --inject_slowdown."""
    options, changed, flags, variables = _with_pgle(benchmark)
    options = [*options, *slowdown_option(benchmark)]
    profiling = _of_processes(benchmark)
    if profiling is not None:
        from benchmarks.request.profiling import disturbed_steps

        disturbed = disturbed_steps(profiling)
        options.append(f"--disturbed_steps={disturbed[0]}-{disturbed[-1]}")
        options.append(f"--recorded_ranks={spans_text(profiling.ranks)}")
        changed = changed | _recording(profiling, benchmark.instruments.profile)
    if benchmark.instruments.profile == "nccl":
        from benchmarks.request.profiling import nccl_trace_environment

        variables = variables | nccl_trace_environment()
    return WorkerOptions(options, changed, flags, variables)


def _with_pgle(benchmark: Benchmark) -> WorkerOptions:
    if benchmark.instruments.pgle == "nsys":
        group, folder = _flag_group("pgle_perf"), profile_folder(benchmark)
        options = [f"--pgle_profile={folder}/profile.json", "--hlo_dir={phase_dir}/hlo"]
        return WorkerOptions(options, {}, group.flags | {PGLE_PROFILE: f"{folder}/{PROFILE_FILE}"}, group.environment)
    if benchmark.instruments.pgle == "auto":
        group = _flag_group("pgle_auto")
        options = [f"--pgle_runs={PROFILING_RUNS}", f"--pgle_settling={SETTLING_STEPS}"]
        return WorkerOptions(
            options, {}, group.flags, group.environment | {"JAX_PGLE_PROFILING_RUNS": str(PROFILING_RUNS)}
        )
    return WorkerOptions([])


def _of_processes(benchmark: Benchmark) -> Profiling | None:
    """Return the requested profiling without ranks that do not exist: on a CPU, a node has only one process."""
    if benchmark.instruments.profiling is None:
        return None
    processes = benchmark.nodes * planning.tasks_per_node(benchmark)
    ranks = [rank for rank in benchmark.instruments.profiling.ranks if rank < processes]
    return msgspec.structs.replace(benchmark.instruments.profiling, ranks=ranks)


def _recording(profiling: Profiling, kind: str) -> dict[str, Scalar]:
    """Return MaxText's settings for its profiler."""
    return {
        "profiler": kind,
        "skip_first_n_steps_for_profiler": profiling.start_step,
        "profiler_steps": profiling.stop_step - profiling.start_step + 1,
        "upload_all_profiler_results": profiling.ranks != [0],  # by default, only rank 0 starts the profiler
    }


def _training(
    benchmark: Benchmark, name: str, extra: WorkerOptions, recorded: Profiling | None, suffix: str
) -> Phase:
    """Return a training phase. With `recorded`, Nsight Systems writes a report whose name ends with `suffix`."""
    tasks = planning.tasks_per_node(benchmark)
    command = planning.worker_command(benchmark, extra.options, extra.changed)
    if recorded is not None:
        from benchmarks.request.profiling import report_name, under_nsys

        output = "{phase_dir}/" + report_name(benchmark, suffix)
        command = under_nsys(recorded, output, command, on_gpu=benchmark.hardware.kind == "gpu")
    return Phase(
        name=name,
        command=command,
        environment=planning.environment(benchmark, extra.flags, extra.variables),
        nodes=benchmark.nodes,
        tasks_per_node=tasks,
        devices_per_task=benchmark.gpus // benchmark.nodes // tasks,
        writes_steps=True,
        programs=["nsys"] if recorded is not None else [],
    )


# --- refusals -------------------------------------------------------------------------------------


def refusals(benchmark: Benchmark) -> Iterator[RequestError]:
    if benchmark.settings.xla_flags:
        from jax_backend import xla_flags

        yield from xla_flags.refusals(benchmark.settings.xla_flags)
    recorded = _of_processes(benchmark)
    if recorded is not None and not recorded.ranks:
        yield RequestError(
            "none of the ranks to profile exists in this run",
            where="--profile_ranks",
            why="on a CPU, one process has all devices of a node",
            next_command="--profile_ranks=0",
        )
    yield from _missing_machinery(benchmark)
    yield from _set_past_pgle(benchmark)
    if benchmark.instruments.pgle == "auto":
        yield from _auto_refusals(benchmark)


def _missing_machinery(benchmark: Benchmark) -> Iterator[RequestError]:
    """Refuse profilers on platforms that they do not support. Accept a CPU, so that tests can run the phases."""
    there = benchmark.hardware.platform in ("cuda", "cpu")
    for flag, value, needs in (
        ("pgle", benchmark.instruments.pgle, ("nsys", "auto")),
        ("profile", benchmark.instruments.profile, ("nsys",)),
    ):
        if value in needs and not there:
            yield RequestError(
                f"{benchmark.hardware.title} does not support --{flag}={value}",
                where=f"--{flag}={value} --hardware={benchmark.hardware.name}",
                why=f"it uses NVIDIA's profiling interface, not that of {benchmark.hardware.platform}",
                next_command=f"--{flag}=off" if flag == "pgle" else "--profile=xplane",
            )


def _set_past_pgle(benchmark: Benchmark) -> Iterator[RequestError]:
    """Refuse --set for a flag or variable to which --pgle itself assigns a value."""
    if benchmark.instruments.pgle == "off":
        return
    groups = [_flag_group(name) for name in GROUPS[benchmark.instruments.pgle]]
    filled = {name: value for group in groups for name, value in group.flags.items()}  # the last group wins
    variables = {f"env.{name}" for group in groups for name in group.environment} | {"env.TF_CPP_MIN_LOG_LEVEL"}
    for name, value in benchmark.settings.overrides.items():
        if name.startswith("xla_dump_") or name in variables or filled.get(name, value) != value:
            yield RequestError(
                f"--pgle={benchmark.instruments.pgle} sets {name}",
                where=f"--set={name}={value}",
                why="--pgle needs its own values to make the profile and to check that XLA reads it",
                next_command=f"--set={name}",
            )


def _auto_refusals(benchmark: Benchmark) -> Iterator[RequestError]:
    if benchmark.steps < FEWEST_STEPS:
        yield RequestError(
            f"--pgle=auto needs {FEWEST_STEPS} steps, but --steps={benchmark.steps}",
            where=f"--steps={benchmark.steps}",
            why=f"jax profiles {PROFILING_RUNS} steps and compiles again; {SETTLING_STEPS} more steps are excluded",
            next_command=f"--steps={FEWEST_STEPS}",
        )
    last, first = benchmark.window.rpartition("-")[2], PROFILING_RUNS + SETTLING_STEPS + 1
    if last.isdecimal() and int(last) < first:
        yield RequestError(
            f"window {benchmark.window} ends before the first step that --pgle=auto can measure",
            where=f"--window={benchmark.window}",
            why=f"that step is {first}, because jax compiles again in step {PROFILING_RUNS}",
            next_command=f"--window={first}-{max(first, benchmark.steps - 1)}",
        )
    profiling = benchmark.instruments.profiling
    if benchmark.instruments.profile == "nsys":
        yield RequestError(
            "--pgle=auto and --profile=nsys cannot run together: both need the GPU's profiling interface",
            where="--pgle=auto --profile=nsys",
            next_command="--profile=xplane",
        )
    elif profiling and profiling.start_step < FEWEST_STEPS:
        yield RequestError(
            f"with --pgle=auto, step {profiling.start_step} is too early to profile",
            where="--profile_start_step",
            why="jax's own profiler uses the first steps, and two profilers cannot run together",
            next_command=f"--profile_start_step={FEWEST_STEPS}",
        )


# --- the identity of a profile --------------------------------------------------------------------


def profile_key(benchmark: Benchmark) -> str | None:
    """Return a hash of everything that determines the profile of --pgle=nsys; None without --pgle=nsys."""
    if benchmark.instruments.pgle != "nsys":
        return None
    lock = CUDA_LOCK if benchmark.hardware.platform == "cuda" else LOCK
    import hashlib

    from jax_backend.inside.profile_identity import identity

    own = str(benchmark.site.python or "") or hashlib.sha256(lock.read_bytes()).hexdigest()
    runs_in = benchmark.settings.image if benchmark.site.runtime == "container" else own
    program = identity(
        planning.maxtext_argv(benchmark),
        {"runs in": runs_in},
        dict(benchmark.parallelism.words()),
        benchmark.hardware.name,
        benchmark.gpus,
        planning.xla_flags_text(benchmark.settings.xla_flags),
    )
    encoded = msgspec.json.encode([program, benchmark.nodes, benchmark.settings.environment], order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:32]
