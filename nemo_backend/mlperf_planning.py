"""Plan the phases of an MLPerf submission's job, which are the phases of one experiment in NVIDIA's run.sub.

    check   in the container on one node: check the program, PyTorch, the GPUs, and the sizes of all mounted files
    clear   on each node, outside the container: clear the caches and set the boost slider of the GPUs
    nccl    run NCCL's all-reduce test over all GPUs
    train   run run_and_time.sh once per GPU, and keep its output as result_0.txt

In contrast to run.sub, each experiment is a separate run (--repeats), and the rendezvous uses a free port. The
refusals in this file do not depend on MLPerf's rules.
"""

import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.assets import read_needs
from benchmarks.backend import EnvironmentSpec
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import read_definition
from benchmarks.mlperf.submission import (
    OF_THE_JOB,
    Submission,
    clears_caches,
    division_of,
    read_submission,
    setting_types,
    variables,
)
from benchmarks.request.settings import positive
from benchmarks.runs import first_check, worker_events
from benchmarks.values import (
    SUBMISSION_ENGINE,
    Benchmark,
    Hardware,
    Parallelism,
    Phase,
    Plan,
    RunRecord,
    Scalar,
    Step,
)
from nemo_backend import layout
from nemo_backend.megatron import reserved as listed_as_reserved

CLEAR, NCCL, TRAIN = "clear", "nccl", "train"
RESULTS = "/results"  # the submission's output folder in the container
NCCL_ARGUMENTS = "-b 62M -e 2G -f 2 -d half"

NAME_OF_HARDWARE = {"h100": "DGXH100", "h200": "DGXH200", "b200": "DGXB200", "gb200": "GB200", "gb300": "GB300"}


@cache
def configs() -> Configs:
    return Configs()


@cache
def submissions() -> dict[str, Submission]:
    return {name: submission_of(name) for name in configs().names("submissions")}


def submission_of(model: str) -> Submission:
    return read_submission(configs(), model)


def settings() -> dict[str, str]:
    """Return every variable that --set accepts, with its type."""
    found: dict[str, str] = {}
    for submission in submissions().values():
        found |= setting_types(submission)
    return found


def reserved() -> dict[str, str]:
    """Return the variables that no run may set, with the reason."""
    kept = {kept.name: f"nothing: {kept.why}" for one in submissions().values() for kept in one.kept}
    return {**kept, **listed_as_reserved("mlperf")}


LAYOUT_SETTINGS = frozenset(name for one in submissions().values() for name in one.knobs.layout().values())


def engines() -> tuple[str, ...]:
    """Return one engine per submission, because each has its own image."""
    return tuple(SUBMISSION_ENGINE + name for name in submissions())


def environment(engine: str, platform: str) -> EnvironmentSpec:  # noqa: ARG001
    names = submission_of(engine.removeprefix(SUBMISSION_ENGINE)).image_names
    return EnvironmentSpec(name=engine, locks=(), import_check="torch", image=names, only_by_name=True)


def parallelism(knobs: dict[str, Scalar], gpus: int) -> Parallelism:
    """Return the layout. The data parallel size is the GPU count divided by all other sizes."""
    axes = {name: axis for one in submissions().values() for axis, name in one.knobs.layout().items()}
    named = {name: knobs[name] for name in axes if name in knobs}
    for name, size in named.items():
        positive(f"--set={name}", int(size))
    place = layout.PLACES["bridge"]
    return layout.parallelism({f"{place}.{layout.SIZES[axes[name]]}": size for name, size in named.items()}, gpus)


# --- the phases ---------------------------------------------------------------------------------


def plan(benchmark: Benchmark) -> Plan:
    submission = submission_of(benchmark.model.name)
    return Plan(
        backend=benchmark.backend,
        environment_name=benchmark.settings.image or benchmark.engine,
        phases=[*_before(benchmark), _train(benchmark, submission)],
    )


def _phase(benchmark: Benchmark, name: str, script: str, *words: str, environment: dict[str, str]) -> Phase:
    """Return a phase that runs a Stepmark script once per GPU, in the container."""
    return Phase(
        name=name,
        command=["bash", f"{{repository}}/nemo_backend/{script}", *words],
        environment=environment,
        nodes=benchmark.nodes,
        tasks_per_node=benchmark.gpus // benchmark.nodes,
        devices_per_task=1,
        writes_steps=False,
        as_root=True,
    )


def _before(benchmark: Benchmark) -> Iterator[Phase]:
    clears, boost = clears_caches(benchmark), int(benchmark.settings.knobs.get("VBOOST_VALUE", 0))
    if clears or boost:  # both affect all users of a node
        found = _phase(benchmark, CLEAR, "mlperf_clear.sh", str(int(clears)), str(boost), environment={})
        once = {"tasks_per_node": 1, "devices_per_task": found.tasks_per_node}
        yield msgspec.structs.replace(found, **once, as_root=False, on_host=True, alone=True)
    if benchmark.gpus > 1 and benchmark.settings.knobs.get("NCCL_TEST", True):
        own, words = dict(benchmark.settings.environment), NCCL_ARGUMENTS.split()
        yield _phase(benchmark, NCCL, "mlperf_nccl.sh", *words, environment=own)


def _train(benchmark: Benchmark, submission: Submission) -> Phase:
    own = [f"{{phase_dir}}/{mount.folder}:{mount.inside}" for mount in submission.run_mounts]
    exported, share = variables(benchmark, submission), benchmark.parallelism
    minibatch = benchmark.batch.micro_batch_size * benchmark.batch.gradient_accumulation
    machine = NAME_OF_HARDWARE.get(benchmark.hardware.name, benchmark.hardware.name)
    environment = {
        **{name: value for name, value in exported.items() if name not in OF_THE_JOB},
        # The value has the same form as the names of NVIDIA's config_*.sh files.
        "DGXSYSTEM": f"{machine}_{benchmark.nodes}x{benchmark.gpus // benchmark.nodes}x{minibatch}"
        f"xtp{share.tensor}pp{share.pipeline}cp{share.context}",
        "MODEL_NAME": submission.name,
        "MODEL_FRAMEWORK": "pytorch",
    }
    words = (submission.workdir, submission.logger if clears_caches(benchmark) else "none")
    phase = _phase(benchmark, TRAIN, "mlperf_task.sh", *words, environment=environment)
    mounts = [*_mounts(benchmark, submission), f"{{phase_dir}}:{RESULTS}", *own]
    return msgspec.structs.replace(phase, writes_steps=True, mounts=mounts)


def _mounts(benchmark: Benchmark, submission: Submission) -> list[str]:
    """Return the mounts that the submission reads and must not write."""
    return [f"{benchmark.data}/{mount.folder}:{mount.inside}:ro" for mount in submission.mounts]


def check_phase(benchmark: Benchmark) -> Phase:
    """Return the phase that checks whether the container has the program, and each data file with its known size."""
    submission = submission_of(benchmark.model.name)
    files = [f"{path}={size or ''}" for path, size in seen_inside(submission)]
    trains = msgspec.structs.replace(_train(benchmark, submission), mounts=_mounts(benchmark, submission))
    gpus = str(trains.tasks_per_node * trains.devices_per_task)
    program = ["{python}", "{repository}/nemo_backend/inside/mlperf_check.py", gpus]
    return first_check.check_phase(trains, [*program, f"{submission.workdir}/run_and_time.sh=", *files], {})


def seen_inside(submission: Submission) -> Iterator[tuple[str, int | None]]:
    """Yield the path in the container and the size of each mounted file that configs/assets lists."""
    places = sorted(submission.mounts, key=lambda mount: len(mount.folder), reverse=True)
    for asset in read_needs(configs(), f"nemo_mlperf_{submission.name}").assets:
        for part in asset.parts:
            path = f"{asset.folder}/{part.path}"
            mount = next((one for one in places if path.startswith(f"{one.folder}/")), None)
            if mount is not None:
                yield f"{mount.inside}/{path.removeprefix(f'{mount.folder}/')}", part.bytes


def read_phase(benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:
    if phase_dir.name != TRAIN:
        return worker_events.read_phase(phase_dir, attempt)
    from nemo_backend import mlperf_reading

    name = benchmark.model.name
    definition = read_definition(configs(), name)
    return mlperf_reading.read_run(benchmark, submission_of(name), definition, phase_dir, attempt)


def follow(benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:  # noqa: ARG001
    from benchmarks.mlperf.log_format import MLLOG
    from nemo_backend.logs import follow_log
    from nemo_backend.mlperf_reading import RESULT_FILE

    return follow_log(phase_dir / RESULT_FILE, MLLOG, attempt)


# --- refusals -----------------------------------------------------------------------------------


def refuses_hardware(hardware: Hardware) -> RequestError | None:
    if hardware.platform == "cuda":
        return None
    return RequestError(
        f"NVIDIA's MLPerf submission does not run on {hardware.title}",
        where=f"--task=mlperf --hardware={hardware.name}",
        why="its container has only CUDA and fp8 kernels; --task=lora trains adapters on a CPU",
        next_command="--hardware=h100",
    )


def needs_transformer_engine(benchmark: Benchmark) -> dict[str, str]:  # noqa: ARG001 - its container has it
    return {}


def refusals(benchmark: Benchmark) -> list[RequestError]:
    """Return the refusals of the first group that has any, because they may be the reason for later refusals."""
    return (
        list(_refuse_place(benchmark))
        or [*_refuse_settings(benchmark), *_refuse_beyond_settings(benchmark)]
        or list(_refuse_data(benchmark))
    )


def _refuse_place(benchmark: Benchmark) -> Iterator[RequestError]:
    if benchmark.site.runtime != "container" or benchmark.site.slurm is None:
        yield RequestError(
            f"an MLPerf submission needs Slurm and containers, which site '{benchmark.site.name}' does not have",
            where=f"--site={benchmark.site.name}",
            why="NVIDIA publishes its program only in an image; choose a Slurm site with `runtime: container`",
            next_command="python launch/run.py --list",
        )


def _refuse_settings(benchmark: Benchmark) -> Iterator[RequestError]:
    submission = submission_of(benchmark.model.name)
    known = setting_types(submission)
    for key in benchmark.settings.knobs:
        if key.startswith("peft.") and key not in benchmark.settings.overrides:
            continue
        if key not in known:
            yield RequestError(
                f"the submission of {submission.name} has no variable '{key}'",
                where=f"--set={key}",
                why="it belongs to another submission or engine, or the submission's train.py sets it itself; "
                "--set=env.NAME=VALUE sets other variables of the container",
                next_command=f"--set={key}",
            )
    for key in (submission.knobs.learning_rate, "WALLTIME_RUNANDTIME"):
        if key not in benchmark.settings.knobs:
            yield RequestError(
                f"{key} has no value for {benchmark.gpus} GPUs",
                where=f"recipe {benchmark.recipe.name}",
                why=f"pass --set={key}=VALUE, or use a number of GPUs for which the recipe has a value",
            )
    if submission.knobs.max_steps is None and benchmark.batch.gradient_accumulation > 1:
        yield RequestError(
            f"the submission of {submission.name} does not accumulate gradients",
            where="--set=gradient_accumulation",
            why="the global batch is the micro batch times the replicas; pass --set=micro_batch_size=N instead",
            next_command="--set=gradient_accumulation",
        )


def _refuse_beyond_settings(benchmark: Benchmark) -> Iterator[RequestError]:
    kept = {*setting_types(submission_of(benchmark.model.name)), *reserved()}
    for name, value in benchmark.settings.environment.items():
        if name in kept:
            yield RequestError(
                f"env.{name} would bypass the setting {name}",
                where=f"--set=env.{name}",
                next_command=f"--set=env.{name} {shlex.quote(f'--set={name}={value}')}",
            )
    for flag, given in (
        ("--profile", benchmark.instruments.profile != "none"),
        ("--inject_slowdown", benchmark.instruments.inject_slowdown),
    ):
        if given:
            what = f"a submission does not support {flag}, because Stepmark does not run its steps"
            yield RequestError(what, where=flag, next_command=f"{flag}=")


def _refuse_data(benchmark: Benchmark) -> Iterator[RequestError]:
    if not benchmark.data.startswith("/"):
        yield RequestError(
            f"{benchmark.model.name} needs a folder with MLPerf's data",
            where="--data",
            why=f"the {division_of(benchmark)} division trains on these data: prepare them, then pass --data=DIR",
            next_command=f"python launch/setup.py --site={benchmark.site.name} --model={benchmark.model.name} "
            f"--task=mlperf --out=$PWD/{benchmark.model.name}",
        )
