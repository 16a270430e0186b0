"""Immutable values for everything that Stepmark reads from configs, resolves, plans, runs and summarises.

Nothing here computes or does I/O. Field names contain their units. Reading a value from a file refuses unknown keys.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

Scalar = bool | int | float | str
Architecture = Literal["amd64", "arm64"]  # a node's CPU architecture, as container registries name it
ImageNames = str | dict[Architecture, str]  # one container image for all architectures, or one for each
Made = TypeVar("Made")


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of all values: immutable, keyword-only, and strict about unknown keys."""


# --- read from configs ------------------------------------------------------------------------


Positive = Annotated[int, msgspec.Meta(gt=0)]
ADAPTED = "^(query_key_value|attention_output|mlp_input|mlp_output|query|key|value|gate|up)$"
AbsolutePath = Annotated[str, msgspec.Meta(pattern="^/")]
VariableName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]  # a step time read from a file; 0 if the file rounded it to 0


class LatentAttention(Value, frozen=True):
    """Multi-head latent attention (MLA): keys and values are projected from one small vector per token."""

    query_rank: Positive
    key_value_rank: Positive
    unrotated_head_dim: Positive  # the part of a query or key head without rotary position embedding
    rotated_head_dim: Positive
    value_head_dim: Positive


class SlidingWindow(Value, frozen=True):
    """Sliding-window attention: a token attends to the last `tokens`, except in every `global_every`-th layer."""

    tokens: Positive
    global_every: Positive


class Attention(Value, frozen=True):
    """The differences of a model's attention from a Llama's."""

    latent: LatentAttention | None = None
    window: SlidingWindow | None = None
    sinks: bool = False  # one trained number per head takes part in the softmax
    biases: bool = False  # query, key, value and output projections have biases
    query_key_norms: bool = False


class Experts(Value, frozen=True):
    """The mixture of experts in each layer after the first `dense_layers`. All experts are gated."""

    count: Positive
    active: Positive  # experts per token, without the shared experts
    ffn_hidden_size: Positive  # of one expert
    shared: Annotated[int, msgspec.Meta(ge=0)] = 0  # experts that process every token
    dense_layers: Annotated[int, msgspec.Meta(ge=0)] = 0
    biases: bool = False  # experts and router have biases


class Model(Value, frozen=True):
    """Dimensions of a decoder. With `uncounted`, the model is not a decoder of tokens, and FLOPs are null."""

    name: str
    family: str
    layers: Positive
    hidden_size: Positive
    ffn_hidden_size: Positive  # of dense layers; of one expert if all layers have experts
    attention_heads: Positive
    query_groups: Positive
    head_dim: Positive
    vocabulary_size: Annotated[int, msgspec.Meta(ge=0)]  # 0: the model does not predict tokens
    tied_embeddings: bool
    rope_theta: float
    norm_epsilon: float
    max_sequence_length: Positive
    backend_settings: dict[str, dict[str, Scalar]]  # backend name -> the backend's settings that select this model
    source: str
    date: str
    attention: Attention = Attention()
    experts: Experts | None = None  # None: all layers are dense
    mtp_modules: Annotated[int, msgspec.Meta(ge=0)] = 0  # multi-token prediction: a layer and a projection each
    uncounted: str = ""  # why Stepmark has no formula for the model's parameters and FLOPs; empty: it has one

    @property
    def dense_layers(self) -> int:
        return self.layers if self.experts is None else self.experts.dense_layers


# Precisions of quantized matmuls, each with its own peak. `fp8` has one scale per tensor or per large block; `mxfp8`
# and `nvfp4` have a scale for every 32 or 16 numbers, which the GPU applies.
EIGHT_BIT = ("fp8", "mxfp8")
QUANTIZED = (*EIGHT_BIT, "nvfp4")


class Peak(Value, frozen=True):
    """A dense matmul rate with its source."""

    tflops: Annotated[float, msgspec.Meta(gt=0)]
    source: str


class Rate(Value, frozen=True):
    """The one-way rate of a device over one kind of connection, in decimal GB/s, with its source."""

    gb_s: Annotated[float, msgspec.Meta(gt=0)]
    source: str
    achievable_gb_s: Annotated[float, msgspec.Meta(gt=0)] | None = None  # the rate that collectives reach in practice
    achievable_source: str = ""


class NvlinkDomain(Value, frozen=True):
    """A group of nodes joined by NVLink, in which a job should stay. `environment` configures NCCL for it."""

    nodes: Positive
    source: str
    environment: dict[str, str] = {}


class CompileTarget(Value, frozen=True):
    """Properties of a GPU that a compiler needs if this machine does not have the GPU."""

    compute_capability: str  # such as 9.0a; the letter marks features that later devices do not have
    multiprocessors: Positive
    fpus_per_multiprocessor: Positive
    clock_ghz: float
    memory_bytes: Positive
    memory_bytes_per_second: Positive
    l2_cache_bytes: Positive
    shared_memory_bytes: Positive  # per multiprocessor
    shared_memory_of_a_block_bytes: Positive  # the maximum that one kernel may request
    source: str
    date: str
    nvlinks: int = 0


class MeasuredPeak(Value, frozen=True):
    """The peak of a whole device in each precision, read from a file that launch/peak.py wrote."""

    file: str
    platform: str
    device_kind: str
    processor: str
    cores: int
    peaks: dict[str, Peak]


class Hardware(Value, frozen=True):
    """A device type. CPUs are included: their "gpus" are virtual devices, and they have no published peak."""

    name: str
    title: str
    kind: Literal["gpu", "tpu", "cpu"]
    platform: Literal["cuda", "rocm", "tpu", "cpu"]  # the software that the framework uses to reach the device
    device_names: list[str]  # the device's names in frameworks and drivers; case does not matter
    devices_per_node: Positive
    memory_gb: float | None  # decimal GB per device; None: devices share the host's memory
    peaks: dict[str, Peak]  # precision -> dense datasheet peak
    achievable: dict[str, Peak]  # precision -> measured matmul peak
    emulated: list[str]  # precisions that run, but whose speed has no meaning
    source: str
    date: str
    published: dict[str, Peak] = {}  # precision -> the peak that published MFU tables use, if it differs
    rates: dict[Literal["memory", "node", "network"], Rate] = {}  # to device memory, within a node, between nodes
    nvlink_domain: NvlinkDomain | None = None  # None: NVLink does not connect nodes
    compile_target: CompileTarget | None = None  # None: other machines cannot compile for this device
    cpu_architecture: Architecture | None = None  # of nodes with this device; None: varies, or is not needed
    cpu_architecture_source: str = ""

    @property
    def memory_bytes(self) -> float | None:
        """Return a device's memory as the driver reports it, otherwise the rounded size from the datasheet."""
        if self.memory_gb is None:
            return None
        return self.memory_gb * 1e9 if self.compile_target is None else self.compile_target.memory_bytes


class JobOptions(Value, frozen=True):
    """The Slurm options for every job of a site. An option that is None, false or empty is omitted."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str = "1:00:00"
    gpus: Literal["gres", "gpus_per_node", "none"] = "gres"  # the option that requests GPUs; not used for CPUs
    exclusive: bool = True
    memory: str | None = "0"  # "0": all memory of a node
    singleton: bool = True  # run one job at a time, because jobs that share a network would slow each other
    reservation: str | None = None
    constraint: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    segment: int | Literal["none"] | None = None  # nodes per network block; None: per NVLink domain; "none": any
    nice: int | None = None
    comment: str | None = None
    mpi: str | None = None  # srun's --mpi, such as pmix
    check: bool = True  # check on one node first whether the framework, its programs and the GPUs are available
    requeue: bool = False  # after a node has failed, start a second attempt in the same run
    warn_seconds: int = 60  # seconds before the time limit at which Slurm signals the workers to stop
    arguments: list[str] = []  # other sbatch options


class Container(Value, frozen=True):
    """How containers are started: with pyxis on a cluster, with docker, podman or apptainer on one machine."""

    images: AbsolutePath | None = None  # the folder of image files, with the same path on every node; not for docker
    program: Literal["docker", "podman", "apptainer"] | None = None  # for one machine; None: the first installed one
    # HOST:CONTAINER, in addition to the checkout and the run's folder
    mounts: list[Annotated[str, msgspec.Meta(pattern="^/[^:]*:/")]] = []
    workdir: str | None = None
    writable: bool = True
    mount_home: bool = False


class Slurm(Value, frozen=True):
    """A Slurm cluster as its users see it."""

    # folders that all nodes have under the same path
    shared_folders: Annotated[list[AbsolutePath], msgspec.Meta(min_length=1)]
    # the device types of the cluster's nodes, by their names in configs/hardware
    hardware: Annotated[list[str], msgspec.Meta(min_length=1)]
    options: JobOptions = JobOptions()
    configuration: str | None = None  # the path of a slurm.conf; None: this machine's default
    max_jobs: int = 1  # the most jobs of one sweep in the queue at the same time
    bus_bandwidth_gb_s: float | None = None  # the bandwidth that NCCL's all-reduce over all nodes must reach
    bus_bandwidth_source: str | None = None


class Site(Value, frozen=True):
    """A place where runs execute. `environment` has the variables that its network needs in every job."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[\w.+:@-]+$")]  # part of commands that users paste into a shell
    kind: Literal["local", "slurm"]
    title: str
    runtime: Literal["venv", "container", "python"]
    source: str
    date: str
    slurm: Slurm | None = None  # set if kind is slurm
    container: Container | None = None  # set if runtime is container
    images: dict[str, ImageNames] = {}  # if runtime is container: engine -> the image that replaces Stepmark's image
    # if runtime is python: one interpreter for all engines, or one for each engine
    python: AbsolutePath | dict[str, AbsolutePath] | None = None
    environment: dict[VariableName, str] = {}
    typed: list[str] = []  # flags that replaced a value of the site's file; never set in the file


class When(Value, frozen=True):
    """The condition of an overlay. Every field that is set must match."""

    model: list[str] | None = None
    dtype: list[str] | None = None
    hardware: list[str] | None = None
    gpus_from: int | None = None
    gpus_below: int | None = None


class Overlay(Value, frozen=True):
    """Values that a recipe adds if a condition holds. Later overlays override earlier ones."""

    when: When = When()
    reason: str = ""
    knobs: dict[str, Scalar] = {}
    environment: dict[str, str] = {}
    xla_flags: dict[str, str] = {}


class Lora(Value, frozen=True):
    """Low-rank adapters of frozen matrices. `targets` are names of flops.ADAPTED_MATRICES."""

    rank: Positive
    alpha: float
    dropout: float
    targets: list[Annotated[str, msgspec.Meta(pattern=ADAPTED)]]


class Layout(Value, frozen=True):
    """A number of GPUs that a recipe supports, and the backend's settings that shard the work for it."""

    gpus: Positive
    knobs: dict[str, Scalar]
    hardware: list[str] | None = None  # the devices that it fits; None: all devices of the recipe


class RecipeDefaults(Value, frozen=True):
    hardware: str
    dtype: str
    gpus: Positive
    steps: Positive


# How a router chooses experts: each expert gets the same number of tokens, or the trained weights decide.
Routing = Literal["balanced", "learned"]


class Recipe(Value, frozen=True):
    """The recipe of a backend to train a model for a task: parallelism, batch and knobs, with their source."""

    name: str
    title: str
    backend: str
    engine: str
    task: str
    models: list[str]
    hardware: list[str]
    dtypes: dict[str, list[str]]  # hardware name, or "*" -> the precisions that the recipe supports there
    defaults: RecipeDefaults
    sequence_length: Positive
    micro_batch_size: Positive  # sequences per device and micro-step
    gradient_accumulation: Positive
    window: str
    data: str
    layouts: Annotated[list[Layout], msgspec.Meta(min_length=1)]
    overlays: list[Overlay]
    source: str
    date: str
    routing: Routing | None = None  # for models with experts; None: learned


# --- resolved ---------------------------------------------------------------------------------


class Parallelism(Value, frozen=True):
    """The division of work among devices.

    The product of all axes except virtual_pipeline and expert is the device count. The experts of a layer are divided
    among `expert` devices, which are also ranks of the other axes within a pipeline stage.
    """

    data: int = 1
    fsdp: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    virtual_pipeline: int = 1
    expert: int = 1

    @property
    def devices(self) -> int:
        return self.data * self.fsdp * self.tensor * self.pipeline * self.context

    def words(self) -> list[tuple[str, int]]:
        """Return the axes with more than one device: [("fsdp", 4), ("data", 2)]."""
        names = ("fsdp", "data", "tensor", "pipeline", "context", "virtual_pipeline", "expert")
        return [(name, getattr(self, name)) for name in names if getattr(self, name) > 1]

    def short(self) -> str:
        """Return the axes as recipes abbreviate them, such as TP4 PP2 CP1. FSDP, VP and EP appear only if used."""
        always = f"TP{self.tensor} PP{self.pipeline} CP{self.context}"
        virtual = f" VP{self.virtual_pipeline}" if self.virtual_pipeline > 1 else ""
        sharded = f" FSDP{self.fsdp}" if self.fsdp > 1 else ""
        experts = f" EP{self.expert}" if self.expert > 1 else ""
        return f"{always}{virtual}{experts}{sharded} DP{self.data}"


class Profiling(Value, frozen=True):
    """The ranks and steps that a profiler records."""

    ranks: list[int]
    start_step: int
    stop_step: int  # the last recorded step
    gpu_metrics: bool = False
    cpu: bool = False


class RecipeReference(Value, frozen=True):
    name: str
    source: str
    date: str
    global_batch_size: int | None = None  # the recipe's value at this scale; None if the recipe has no such scale


SUBMISSION_ENGINE = "mlperf_"  # begins the engines that run NVIDIA's own program, without a Stepmark worker


class Batch(Value, frozen=True):
    """The sequences of a step, and their division into micro-steps."""

    sequence_length: int
    micro_batch_size: Positive
    gradient_accumulation: Positive
    global_batch_size: Positive

    def short(self) -> str:
        """Return the sizes as recipes abbreviate them: MBS2 GBS64 GA4."""
        return f"MBS{self.micro_batch_size} GBS{self.global_batch_size} GA{self.gradient_accumulation}"


class RunSettings(Value, frozen=True):
    """The settings of the framework and its environment."""

    knobs: dict[str, Scalar]  # the backend's own settings
    environment: dict[str, str]
    xla_flags: dict[str, str]
    overrides: dict[str, str]  # the settings passed with --set, as typed
    image: str = ""  # the container image or its file; empty: no container, or no image is known


class Instruments(Value, frozen=True):
    """The options that record, guide or slow the training steps."""

    profile: str = "none"
    profiling: Profiling | None = None  # None: no profiler runs (an NCCL trace does not count as a profiler)
    pgle: str = "off"
    pgle_profile: str = ""  # the key of an earlier run's profile, which was copied to the run's folder; empty: none
    inject_slowdown: float = 0.0  # the fraction by which every step is slowed: 0.5 means 50% longer


class Benchmark(Value, frozen=True):
    """One fully resolved request without open defaults. benchmark.json is flat: it has no `batch` or `settings`."""

    backend: str
    engine: str
    model: Model
    task: str
    dtype: str
    hardware: Hardware
    site: Site
    gpus: Positive
    nodes: Positive
    parallelism: Parallelism
    lora: Lora | None  # None: all parameters are trained
    batch: Batch
    steps: Positive
    window: str
    data: str  # the recipe's data (mock, synthetic), or the folder passed with --data
    settings: RunSettings
    recipe: RecipeReference
    instruments: Instruments = Instruments()
    measured_peaks: dict[str, Peak] = {}  # precision -> the peak that launch/peak.py measured on this device
    routing: Routing | None = None  # None: the model has no experts

    @property
    def trains(self) -> str:
        """Return pretrain or lora. An MLPerf task can be either, depending on the benchmark."""
        return "lora" if self.lora is not None else "pretrain"

    def departures(self) -> list[str]:
        """Return the differences from the recipe that a changed layout causes: another global batch size."""
        own = self.recipe.global_batch_size
        if own in (None, self.batch.global_batch_size):
            return []
        return [f"global batch {self.batch.global_batch_size}, but the recipe has {own} for {self.gpus} devices"]

    @property
    def is_submission(self) -> bool:
        """Return whether an MLPerf submission's own program runs, whose memory and other work are not modelled."""
        return self.engine.startswith(SUBMISSION_ENGINE)

    @property
    def tokens_per_step(self) -> int:
        return self.batch.sequence_length * self.batch.global_batch_size


_GROUPS: dict[str, type[Value]] = {"batch": Batch, "settings": RunSettings, "instruments": Instruments}
_GROUP_OF = {name: group for group, kind in _GROUPS.items() for name in kind.__struct_fields__}


def benchmark_fields(benchmark: Benchmark) -> dict[str, Any]:
    """Return all fields of a benchmark by name, including the fields of its nested groups."""
    fields = msgspec.structs.asdict(benchmark)
    for group in _GROUPS:
        fields |= msgspec.structs.asdict(fields.pop(group))
    return fields


def benchmark_from(fields: Mapping[str, Any]) -> Benchmark:
    """Make a benchmark from all its fields by name. Raise msgspec.ValidationError if a value has a wrong type."""
    nested: dict[str, Any] = {group: {} for group in _GROUPS}
    for name, value in fields.items():
        (nested[_GROUP_OF[name]] if name in _GROUP_OF else nested)[name] = value
    return msgspec.convert(nested, Benchmark)


def changed_benchmark(benchmark: Benchmark, **fields: Any) -> Benchmark:
    """Return the benchmark with new values for some fields. Fields of nested groups are passed by their own names."""
    for group in {_GROUP_OF[name] for name in fields if name in _GROUP_OF}:
        own = {name: fields.pop(name) for name in list(fields) if _GROUP_OF.get(name) == group}
        fields[group] = msgspec.structs.replace(getattr(benchmark, group), **own)
    return msgspec.structs.replace(benchmark, **fields)


class BenchmarkName(Value, frozen=True):
    """The fields that distinguish benchmarks in a result and in tables of many runs."""

    backend: str
    engine: str
    model: str
    task: str
    dtype: str
    hardware: str
    gpus: Positive
    nodes: Positive
    sequence_length: int
    global_batch_size: int


def name_words(benchmark: Benchmark) -> dict[str, Any]:
    """Return the fields of the BenchmarkName of a benchmark."""
    fields = benchmark_fields(benchmark)
    return {name: fields[name] for name in BenchmarkName.__struct_fields__} | {
        "model": benchmark.model.name,
        "hardware": benchmark.hardware.name,
    }


class Nightly(Value, frozen=True):
    """The place of a run in a nightly suite: its cell, its night and its role."""

    suite: str
    cell: str
    night: str  # the night's name, which sorts by time
    role: Literal["night", "rerun"]


class Labels(Value, frozen=True):
    """Labels that the user or a suite gives a run, stored in provenance.json. They do not change the training."""

    tags: list[str] = []
    nightly: Nightly | None = None


NO_LABELS = Labels()


# --- planned ----------------------------------------------------------------------------------


class Phase(Value, frozen=True):
    """One program of a run: its command, its number of tasks, and its environment.

    Every task gets `environment` and the site's rendezvous variables. The site fills in `{python}`, `{repository}`
    and `{phase_dir}` in `command` and `environment`, so that a plan does not contain the paths of one machine.
    """

    name: str
    command: list[str]
    environment: dict[str, str]
    nodes: int
    tasks_per_node: int
    devices_per_task: int
    writes_steps: bool  # if several phases write steps, the steps of the last one are the result
    programs: list[str] = []  # programs that must be on the PATH of its nodes or of its container
    mounts: list[str] = []  # HOST:CONTAINER, in addition to the site's mounts; {phase_dir} is filled in
    as_root: bool = False  # run as root in the container, because the program writes into folders of the image
    on_host: bool = False  # run outside the container
    alone: bool = False  # the phase changes settings of its nodes, so the job needs the nodes exclusively

    @property
    def tasks(self) -> int:
        return self.nodes * self.tasks_per_node


class Plan(Value, frozen=True):
    """The ordered phases of a run."""

    backend: str
    environment_name: str  # the backend's environment, or the container image, in which the phases run
    phases: list[Phase]
    notes: list[str] = []  # warnings for readers of the metrics, one line each


# --- run --------------------------------------------------------------------------------------

PROFILER = "profiler"  # the reason to exclude the steps that a profiler recorded, and their neighbours


class Step(Value, frozen=True, gc=False):  # a log has millions of them, and they cannot be part of a reference cycle
    """One training step as the run reported it. A line of steps.jsonl."""

    step: int
    seconds: float | None  # the true duration of the step; None if the source does not report it
    loss: float | None
    tokens: int | None
    attempt: int = 1
    rank: int = 0
    excluded_because: str | None = None
    elapsed_seconds: float | None = None  # the time at which the step ended, since the attempt's first step started
    framework_seconds: float | None = None  # the duration that the framework printed for this step
    framework_tflops_per_device: float | None = None
    framework_tokens_per_second_per_device: float | None = None
    framework_global_batch_size: int | None = None
    framework_rates: dict[str, float] | None = None  # printed rates of the whole job, by name
    other_losses: dict[str, float | None] | None = None  # terms that `loss` excludes: load_balancing, mtp


class WorkerFacts(Value, frozen=True):
    """The facts that a worker recorded inside the framework, once, before the first step."""

    rank: int
    process_count: int
    device_count: int
    local_device_count: int
    device_kind: str
    platform: str
    parameters: int
    trainable_parameters: int
    mesh: dict[str, int]
    versions: dict[str, str]
    argv: list[str]
    notes: list[str] = []
    xla_flags: str = ""
    program: str | None = None  # sha256 of the step's lowered program; None: the framework has no such program


class WorkerEnd(Value, frozen=True):
    """The end of a worker. `failures` are broken assertions: the run finished, but its result is invalid."""

    rank: int
    status: Literal["done", "error", "interrupted"]
    message: str = ""
    failures: list[str] = []
    notes: list[str] = []


class RankStart(Value, frozen=True):
    """The host and time at which a rank started its first step. The elapsed_seconds of its steps start there."""

    rank: int
    unix_seconds: float
    host: str


class PgleProfile(Value, frozen=True):
    """The contents of profile.json, which describes the profile.pbtxt next to it and the profiled program."""

    key: str  # the key of the request that the profile was made for
    sha256: str  # the digest of profile.pbtxt
    instructions: int  # the number of instructions with a cost
    collectives: int  # the number of collectives in the profiled program
    covered: int  # the number of collectives in the profiled program that have a cost
    made_by: dict[str, Any]  # settings, versions, mesh, device and XLA flags of the profiled program, by name
    made_in: str = ""  # the run that made the profile, if another run uses it


class PgleSeen(Value, frozen=True):
    """The evidence of a phase for profile-guided latency estimation: whether it was applied, and why."""

    applied: bool
    reason: str
    profiled_steps: int | None = None  # the number of steps that the framework itself profiled
    empty_traces: int | None = None  # the number of profiled steps whose trace was empty
    recompile_step: int | None = None
    collectives: int | None = None  # collectives of the measured program that need a cost
    covered: int | None = None  # the number of collectives of the measured program with a cost
    profile: PgleProfile | None = None  # the profile, if a separate profiling phase made it


class MlperfEvaluation(Value, frozen=True):
    samples: int | None
    value: float | None


class MlperfOutcome(Value, frozen=True):
    """The outcome of an MLPerf run, from its own log. Seconds are by the log's clock, from run_start to run_stop."""

    benchmark: str
    file: str  # the log's path in the phase's folder
    status: str  # the status in run_stop: success, aborted, fail or unknown
    target: float
    reached: bool  # whether an evaluation reached the target, independent of the status
    division: str
    evaluations: list[MlperfEvaluation]
    samples: int | None
    seconds: float | None  # the time to train; for an aborted run, the time until it stopped
    init_seconds: float | None
    parts: dict[str, float]  # training, evaluation, checkpoint, other; the sum is `seconds`; empty: not in the log
    samples_per_second: float | None


class EachTime(Generic[Made]):
    """Values that are read from files again in each iteration, so that the steps of all ranks never fill memory."""

    def __init__(self, make: Callable[[], Iterator[Made]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Made]:
        return self._make()


def first_rank(steps: Iterable[Step]) -> list[Step]:
    """Return the steps of rank 0. They must come first."""
    return list(takewhile(lambda step: step.rank == 0, steps))


class RunRecord(Value, frozen=True):
    """All that the raw files of one phase and attempt contain, before anything is computed from it."""

    attempt: int
    facts: list[WorkerFacts]
    steps: Iterable[Step]  # ordered by rank
    ends: list[WorkerEnd]
    unreadable: list[str]  # "file:line reason" for each unreadable line
    started: list[RankStart] = []
    watched: dict[int, PgleSeen] = {}  # rank -> what its worker observed of the framework's own PGLE
    pgle: PgleSeen | None = None  # the backend's conclusion from these observations; None: a phase without PGLE
    mlperf: MlperfOutcome | None = None  # set for an MLPerf submission


# --- summarised -------------------------------------------------------------------------------


Settling = Literal["settled", "still moving", "too short", "not judged"]  # not judged: without a window


class Window(Value, frozen=True):
    """The steps in the window, the number of excluded steps by reason, and whether the step time had settled."""

    rule: str
    first_step: int | None
    last_step: int | None
    counted: int
    settled: bool
    excluded: dict[str, int]
    settling: Settling = "not judged"
    drift_percent_per_minute: float | None = None  # only if the run is still moving; positive: steps get slower
    median_off_percent: float | None = None  # the largest error of the median that this drift can cause
    steps_to_tell: int | None = None  # only if the run is too short: the number of steps that may be enough


# --- how a framework stores a step --------------------------------------------------------------


class Recompute(Value, frozen=True):
    """The activations that a framework recomputes in the backward pass instead of keeping them."""

    matmuls: frozenset[str] = frozenset()  # recomputed matmuls of a layer, by the names in ledger.LAYER_MATMULS
    layers: int | None = None  # the number of layers that are recomputed; None: all layers


class LayerLoop(Value, frozen=True):
    """Buffers of a program that loops over its layers, in addition to its state, as in XLA's programs for GPUs.

    They were found buffer by buffer in compiled programs (docs/explanation/compilation.md).
    """

    reordered_parameters: int  # weights per layer that are copied into another order before the loop
    pipelined_layers: int  # the number of layers whose gradients wait to be reduced and scattered
    gathers_ahead: bool  # during the loss, the last layer's results are kept and its weights are gathered again
    one_hot_tokens: bool  # tokens are kept as one-hot vectors over the vocabulary, because the embedding is a matmul
    head_number_bytes: int  # bytes of one number of the head and of its logits, as they are multiplied
    gradient_of_logits_waits: bool  # the logits' gradient is kept during the loop, for the head's gradient after it


class NumberBytes(Value, frozen=True):
    """The bytes of one number, by kind."""

    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int  # Adam's two moments, and a master weight if the framework keeps one
    matrix_bytes: int | None = None  # a weight of a layer's matrices when it is gathered; None: as in computation
    logit_number_bytes: int = 8  # a logit and its gradient together, both in float32
    reduced_bytes: int | None = None  # a gradient when replicas sum it; None: as it is stored
    returned_bytes: int | None = None  # a gradient or new weight that a replica gets back; None: as reduced


class Storage(Value, frozen=True):
    """How a framework stores the state of a training step."""

    saved_activations: frozenset[str]  # names from `activation_widths` that are kept for the backward pass
    numbers: NumberBytes
    optimizer_replicas: int  # the number of devices with the same weights, which shard the optimizer's state
    gathers_layers: bool  # every device gathers the sharded weights of a layer to compute it
    writes_attention_scores: bool  # True for plain attention; fused attention never writes its scores
    usable_fraction: float  # the share of a device's memory that a step can use
    one_byte_activations: frozenset[str] = frozenset()  # the saved activations that are kept quantized
    quantized_number_bytes: float = 1.0  # of a number of these, with its scales
    weights_over_context: bool = False  # the ranks of a context group also shard weights, so they are not replicas
    whole_states: bool = False  # a tensor group shards hidden states and gathers them to compute
    recompute: Recompute | None = None  # what the backward pass recomputes; None: the backend does not report it
    tensor_exchanges: float | None = None  # exchanges of hidden states per layer in a tensor group; None: the fewest
    input_only_layers: int = 0  # layers that keep only their input and recompute the rest
    recomputed_together: int = 1  # consecutive input-only layers that are recomputed together, from one saved input
    unneeded_activations: frozenset[str] = frozenset()  # activations that only a frozen weight's gradient would need
    score_bytes: int = 8  # bytes of a written attention score: in float32, with its softmax
    dummy_gradients: bool = False  # a placeholder per weight shape stays, because gradients go straight to a buffer
    absent_layers: int = 0  # layers whose activations are offloaded to the host's memory
    whole_activations: frozenset[str] = frozenset()  # activations that no device of a tensor group shards
    tables_on_every_stage: bool = False  # every stage has embedding and head; the stages share the tokens of both
    whole_adapters: bool = False  # each device has all adapters, even if the weights are sharded
    uncounted: tuple[str, ...] = ()  # settings that change the stored state by an unknown amount
    # The content of each part of a pipeline, in order: E embedding, t layer, m MTP module, L head and loss.
    # Empty: the stages share the layers.
    stages: tuple[str, ...] = ()
    expert_shards: int | None = None  # devices that divide the experts; None: those that divide all weights
    dispatched_rows: float = 1.0  # size of the buffers of tokens for experts, relative to that of balanced experts
    layer_loop: LayerLoop | None = None  # None: the largest buffers of each kind give the estimate of the peak


def to_builtins(value: object) -> Any:
    """Return a value as plain dictionaries, lists and scalars for JSON or YAML."""
    return msgspec.to_builtins(value)


def json_text(value: object) -> str:
    """Return readable JSON of a value, with the keys in their declared order."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # the name of a host or a file may not be UTF-8
        encoded = msgspec.json.encode(_encodable(to_builtins(value)))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(inner) for key, inner in value.items()}
    return [_encodable(inner) for inner in value] if isinstance(value, list | tuple) else value


SettingTypes = Mapping[str, str]  # setting name -> "bool" | "int" | "float" | "str" | "list" | "dict"
