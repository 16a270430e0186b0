"""The words of Stepmark as frozen values: what is read from configs, resolved, planned, run and counted.

Nothing here computes or does I/O. Units are in the names. Unknown keys are refused when a
value is read from a file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

Scalar = bool | int | float | str
Architecture = Literal["amd64", "arm64"]  # of a node's CPU, as container registries call it
ImageNames = str | dict[Architecture, str]  # a container image for all architectures, or one for each
Made = TypeVar("Made")


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every value: immutable, keyword-only, strict about its keys."""


# --- read from configs ------------------------------------------------------------------------


Positive = Annotated[int, msgspec.Meta(gt=0)]
ADAPTED = "^(query_key_value|attention_output|mlp_input|mlp_output|query|key|value|gate|up)$"
AbsolutePath = Annotated[str, msgspec.Meta(pattern="^/")]
VariableName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]  # of a step, as read from a file; 0 if the file rounded it


class Model(Value, frozen=True):
    """Dimensions of a dense Llama-shaped decoder. With `uncounted`, the architecture differs and FLOPs are null."""

    name: str
    family: str
    layers: Positive
    hidden_size: Positive
    ffn_hidden_size: Positive
    attention_heads: Positive
    query_groups: Positive
    head_dim: Positive
    vocabulary_size: Annotated[int, msgspec.Meta(ge=0)]  # 0: it predicts no tokens
    tied_embeddings: bool
    rope_theta: float
    norm_epsilon: float
    max_sequence_length: Positive
    backend_settings: dict[str, dict[str, Scalar]]  # backend name -> the settings that name this model there
    source: str
    date: str
    uncounted: str = ""  # why no formula here counts its parameters and FLOPs


class Peak(Value, frozen=True):
    """One dense matmul rate and its source."""

    tflops: Annotated[float, msgspec.Meta(gt=0)]
    source: str


class Rate(Value, frozen=True):
    """The rate of one device over one kind of connection, one way, in decimal GB/s, and its source."""

    gb_s: Annotated[float, msgspec.Meta(gt=0)]
    source: str
    achievable_gb_s: Annotated[float, msgspec.Meta(gt=0)] | None = None  # what collectives reach of it
    achievable_source: str = ""


class NvlinkDomain(Value, frozen=True):
    """Nodes joined by NVLink: a job should stay within one domain. `environment` configures NCCL for it."""

    nodes: Positive
    source: str
    environment: dict[str, str] = {}


class CompileTarget(Value, frozen=True):
    """Properties of a GPU that a compiler needs if the GPU is not in this machine."""

    compute_capability: str  # such as 9.0a; the letter stands for what later devices lack
    multiprocessors: Positive
    fpus_per_multiprocessor: Positive
    clock_ghz: float
    memory_bytes: Positive
    memory_bytes_per_second: Positive
    l2_cache_bytes: Positive
    shared_memory_bytes: Positive  # of a multiprocessor
    shared_memory_of_a_block_bytes: Positive  # the most that a kernel may ask for
    source: str
    date: str
    nvlinks: int = 0


class MeasuredPeak(Value, frozen=True):
    """The peak of the whole device in each precision, from a file of launch/peak.py."""

    file: str
    platform: str
    device_kind: str
    processor: str
    cores: int
    peaks: dict[str, Peak]


class Hardware(Value, frozen=True):
    """A device type. A CPU is one too: its "gpus" are virtual devices and it has no published peak."""

    name: str
    title: str
    kind: Literal["gpu", "tpu", "cpu"]
    platform: Literal["cuda", "rocm", "tpu", "cpu"]  # the software below the framework
    device_names: list[str]  # what the frameworks and drivers call it, compared whole and case-insensitively
    devices_per_node: Positive
    memory_gb: float | None  # decimal GB a device; None: the host's memory
    peaks: dict[str, Peak]  # precision -> dense datasheet peak
    achievable: dict[str, Peak]  # precision -> measured matmul peak
    emulated: list[str]  # precisions that run but prove nothing about speed
    source: str
    date: str
    published: dict[str, Peak] = {}  # precision -> another peak, which published tables of MFU divide by
    rates: dict[Literal["memory", "node", "network"], Rate] = {}  # to its memory, within a node, between nodes
    nvlink_domain: NvlinkDomain | None = None  # None: NVLink ends at a node
    compile_target: CompileTarget | None = None  # None: nothing can be compiled for it on another machine
    cpu_architecture: Architecture | None = None  # of the nodes it is sold in; None: of either, or not a container's
    cpu_architecture_source: str = ""

    @property
    def memory_bytes(self) -> float | None:
        """Return the memory of a device as its driver reports it, otherwise as the datasheet rounds it."""
        if self.memory_gb is None:
            return None
        return self.memory_gb * 1e9 if self.compile_target is None else self.compile_target.memory_bytes


class JobOptions(Value, frozen=True):
    """Slurm options of every job of a site. An option that is None, false or empty is omitted."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str = "1:00:00"
    gpus: Literal["gres", "gpus_per_node", "none"] = "gres"  # how a node's GPUs are asked for; never for a CPU
    exclusive: bool = True
    memory: str | None = "0"  # "0": all that a node has
    singleton: bool = True  # one job at a time: two that share a network would measure each other
    reservation: str | None = None
    constraint: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    segment: int | Literal["none"] | None = None  # None: as many nodes as NVLink joins; "none": not asked for
    nice: int | None = None
    comment: str | None = None
    mpi: str | None = None  # for srun, such as pmix
    check: bool = True  # first, on one node: are the framework, its programs and the GPUs there?
    requeue: bool = False  # after a node has failed: a second attempt in the same run
    warn_seconds: int = 60  # how long before the time limit the workers get a signal to stop
    arguments: list[str] = []  # anything else, as sbatch takes it


class Container(Value, frozen=True):
    """How containers are started: by pyxis on a cluster, by docker, podman or apptainer on one machine."""

    images: AbsolutePath | None = None  # the folder of the image files, as every node sees it; docker has its own
    program: Literal["docker", "podman", "apptainer"] | None = None  # on one machine; None: the first that is there
    # HOST:CONTAINER, in addition to the checkout and the run's folder
    mounts: list[Annotated[str, msgspec.Meta(pattern="^/[^:]*:/")]] = []
    workdir: str | None = None
    writable: bool = True
    mount_home: bool = False


class Slurm(Value, frozen=True):
    """A Slurm cluster, as its users see it."""

    # what every node sees under the same path
    shared_folders: Annotated[list[AbsolutePath], msgspec.Meta(min_length=1)]
    # the devices of its nodes, names of configs/hardware
    hardware: Annotated[list[str], msgspec.Meta(min_length=1)]
    options: JobOptions = JobOptions()
    configuration: str | None = None  # a slurm.conf; None: the one this machine uses
    max_jobs: int = 1  # of one sweep, in the queue at once
    bus_bandwidth_gb_s: float | None = None  # what NCCL's all-reduce over all nodes must reach
    bus_bandwidth_source: str | None = None


class Site(Value, frozen=True):
    """A place to run. `environment` holds the variables that the cluster's network needs in every job."""

    name: str
    kind: Literal["local", "slurm"]
    title: str
    runtime: Literal["venv", "container", "python"]
    source: str
    date: str
    slurm: Slurm | None = None  # for kind slurm
    container: Container | None = None  # for runtime container
    images: dict[str, ImageNames] = {}  # for runtime container: engine -> the image used instead of Stepmark's
    # for runtime python: the interpreter, or one for each engine
    python: AbsolutePath | dict[str, AbsolutePath] | None = None
    environment: dict[VariableName, str] = {}
    typed: list[str] = []  # the flags that were laid over what the site's file says; in no file


class When(Value, frozen=True):
    """The condition of an overlay: every field given must match."""

    model: list[str] | None = None
    dtype: list[str] | None = None
    hardware: list[str] | None = None
    gpus_from: int | None = None
    gpus_below: int | None = None


class Overlay(Value, frozen=True):
    """Additional values of a recipe if a condition holds; later overlays win."""

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
    """One scale a recipe is made for, and the backend's own settings that shard it."""

    gpus: Positive
    knobs: dict[str, Scalar]
    hardware: list[str] | None = None  # whose nodes hold it; None: the whole recipe's


class RecipeDefaults(Value, frozen=True):
    hardware: str
    dtype: str
    gpus: Positive
    steps: Positive


class Recipe(Value, frozen=True):
    """The recipe of a backend to train a model for a task: parallelism, batch and knobs, with their source."""

    name: str
    title: str
    backend: str
    engine: str
    task: str
    models: list[str]
    hardware: list[str]
    dtypes: dict[str, list[str]]  # hardware name, or "*" -> the precisions the recipe has there
    defaults: RecipeDefaults
    sequence_length: Positive
    micro_batch_size: Positive  # sequences a device and micro-step
    gradient_accumulation: Positive
    window: str
    data: str
    layouts: Annotated[list[Layout], msgspec.Meta(min_length=1)]
    overlays: list[Overlay]
    source: str
    date: str


# --- resolved ---------------------------------------------------------------------------------


class Parallelism(Value, frozen=True):
    """The division of work among devices; the product of all but virtual_pipeline is the device count."""

    data: int = 1
    fsdp: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    virtual_pipeline: int = 1

    @property
    def devices(self) -> int:
        return self.data * self.fsdp * self.tensor * self.pipeline * self.context

    def words(self) -> list[tuple[str, int]]:
        """Return the axes with more than one device: [("fsdp", 4), ("data", 2)]."""
        names = ("fsdp", "data", "tensor", "pipeline", "context", "virtual_pipeline")
        return [(name, getattr(self, name)) for name in names if getattr(self, name) > 1]

    def short(self) -> str:
        """Return the axes in the letters of the recipes, such as TP4 PP2 CP1; FSDP and VP only if they are used."""
        always = f"TP{self.tensor} PP{self.pipeline} CP{self.context}"
        virtual = f" VP{self.virtual_pipeline}" if self.virtual_pipeline > 1 else ""
        sharded = f" FSDP{self.fsdp}" if self.fsdp > 1 else ""
        return f"{always}{virtual}{sharded} DP{self.data}"


class Profiling(Value, frozen=True):
    """The ranks and steps that a profiler records."""

    ranks: list[int]
    start_step: int
    stop_step: int  # the last one that is recorded
    gpu_metrics: bool = False
    cpu: bool = False


class RecipeReference(Value, frozen=True):
    name: str
    source: str
    date: str
    global_batch_size: int | None = None  # the recipe's own at this scale; None if the recipe does not list the scale


SUBMISSION_ENGINE = "mlperf_"  # and its name: an engine in which NVIDIA's own program runs, and no worker of Stepmark


class Batch(Value, frozen=True):
    """The tokens of a step, and their division."""

    sequence_length: int
    micro_batch_size: Positive
    gradient_accumulation: Positive
    global_batch_size: Positive

    def short(self) -> str:
        """The sizes in the letters that recipes use: MBS2 GBS64 GA4."""
        return f"MBS{self.micro_batch_size} GBS{self.global_batch_size} GA{self.gradient_accumulation}"


class RunSettings(Value, frozen=True):
    """The settings of the framework."""

    knobs: dict[str, Scalar]  # the backend's own settings
    environment: dict[str, str]
    xla_flags: dict[str, str]
    overrides: dict[str, str]  # what --set changed, as typed
    image: str = ""  # the container image it runs in, or its file; empty: no container, or no image is known


class Instruments(Value, frozen=True):
    """The options that record, guide or slow the training steps."""

    profile: str = "none"
    profiling: Profiling | None = None  # None: no profiler runs (a trace of NCCL's calls does not count as one)
    pgle: str = "off"
    pgle_profile: str = ""  # the key of an earlier run's profile in the run's folder; empty: none
    inject_slowdown: float = 0.0  # every step takes this much longer, 0.5: by half


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
    lora: Lora | None  # None: every parameter is trained
    batch: Batch
    steps: Positive
    window: str
    data: str  # what the recipe names (mock, synthetic), or the folder given by --data
    settings: RunSettings
    recipe: RecipeReference
    instruments: Instruments = Instruments()
    measured_peaks: dict[str, Peak] = {}  # precision -> what launch/peak.py measured on this device

    @property
    def trains(self) -> str:
        """pretrain or lora: what is trained, where the task is a benchmark of either."""
        return "lora" if self.lora is not None else "pretrain"

    def departures(self) -> list[str]:
        """Return the differences from the recipe that a changed layout causes: another global batch size."""
        own = self.recipe.global_batch_size
        if own in (None, self.batch.global_batch_size):
            return []
        return [f"global batch {self.batch.global_batch_size}: the recipe's for {self.gpus} devices is {own}"]

    @property
    def is_submission(self) -> bool:
        """Return whether an MLPerf submission's own program runs. Its memory and other work are not modelled."""
        return self.engine.startswith(SUBMISSION_ENGINE)

    @property
    def tokens_per_step(self) -> int:
        return self.batch.sequence_length * self.batch.global_batch_size


_GROUPS: dict[str, type[Value]] = {"batch": Batch, "settings": RunSettings, "instruments": Instruments}
_GROUP_OF = {name: group for group, kind in _GROUPS.items() for name in kind.__struct_fields__}


def benchmark_fields(benchmark: Benchmark) -> dict[str, Any]:
    """Return the fields of a benchmark by their names, those of its groups among them."""
    fields = msgspec.structs.asdict(benchmark)
    for group in _GROUPS:
        fields |= msgspec.structs.asdict(fields.pop(group))
    return fields


def benchmark_from(fields: Mapping[str, Any]) -> Benchmark:
    """Make a benchmark from its fields by their names. msgspec.ValidationError if one does not fit."""
    nested: dict[str, Any] = {group: {} for group in _GROUPS}
    for name, value in fields.items():
        (nested[_GROUP_OF[name]] if name in _GROUP_OF else nested)[name] = value
    return msgspec.convert(nested, Benchmark)


def changed_benchmark(benchmark: Benchmark, **fields: Any) -> Benchmark:
    """Return the benchmark with other values of some fields, by their names."""
    for group in {_GROUP_OF[name] for name in fields if name in _GROUP_OF}:
        own = {name: fields.pop(name) for name in list(fields) if _GROUP_OF.get(name) == group}
        fields[group] = msgspec.structs.replace(getattr(benchmark, group), **own)
    return msgspec.structs.replace(benchmark, **fields)


class BenchmarkName(Value, frozen=True):
    """The words that tell one benchmark from another, in a result and in every table of many runs."""

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
    """The fields of its BenchmarkName."""
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
    """Labels that a user or a suite gives a run; they do not change the training. `labels` in provenance.json."""

    tags: list[str] = []
    nightly: Nightly | None = None


NO_LABELS = Labels()


# --- planned ----------------------------------------------------------------------------------


class Phase(Value, frozen=True):
    """One program of a run: what to start, how often, and with which environment.

    Every task gets `environment` and, besides, the rendezvous variables of the site.
    `{python}`, `{repository}` and `{phase_dir}` in `command` and `environment` are filled in by the
    site; so a plan names no path of one machine.
    """

    name: str
    command: list[str]
    environment: dict[str, str]
    nodes: int
    tasks_per_node: int
    devices_per_task: int
    writes_steps: bool  # of several that do, the steps of the last are the result
    programs: list[str] = []  # that its nodes, or its container, must have on their PATH
    mounts: list[str] = []  # HOST:CONTAINER, in addition to the site's; {phase_dir} is filled in here too
    as_root: bool = False  # in its container, because it writes into folders of the image
    on_host: bool = False  # outside the container
    alone: bool = False  # it changes settings of its nodes, so the job must have them exclusively

    @property
    def tasks(self) -> int:
        return self.nodes * self.tasks_per_node


class Plan(Value, frozen=True):
    """The ordered phases of a run."""

    backend: str
    environment_name: str  # the backend's environment, or the container image, that the phases run in
    phases: list[Phase]
    notes: list[str] = []  # what a reader of the figures must know, each in a line


# --- run --------------------------------------------------------------------------------------

PROFILER = "profiler"  # why a step is excluded that was recorded, or is next to one that was


class Step(Value, frozen=True, gc=False):  # a log has millions of them, and they cannot be part of a reference cycle
    """One training step as the run reported it. Lines of steps.jsonl."""

    step: int
    seconds: float | None  # true seconds of this step; None if the source does not give them
    loss: float | None
    tokens: int | None
    attempt: int = 1
    rank: int = 0
    excluded_because: str | None = None
    elapsed_seconds: float | None = None  # end of this step, counted from the start of the attempt's first step
    framework_seconds: float | None = None  # what the framework itself printed for this step
    framework_tflops_per_device: float | None = None
    framework_tokens_per_second_per_device: float | None = None
    framework_global_batch_size: int | None = None
    framework_rates: dict[str, float] | None = None  # printed rates of the whole job, by name


class WorkerFacts(Value, frozen=True):
    """The facts that a worker recorded inside the framework, once, before the first step."""

    rank: int
    process_count: int | None  # None, here and below: the framework's own logs are all there is, and do not say
    device_count: int | None
    local_device_count: int
    device_kind: str | None
    platform: str
    parameters: int | None
    trainable_parameters: int | None
    mesh: dict[str, int]
    versions: dict[str, str]
    argv: list[str]
    notes: list[str] = []
    xla_flags: str = ""
    program: str | None = None  # sha256 of the step as the framework lowered it; None: it lowers none, or hides it


class WorkerEnd(Value, frozen=True):
    """The end of a worker. `failures` are broken assertions: the run finished but proves nothing."""

    rank: int
    status: Literal["done", "error", "interrupted"]
    message: str = ""
    failures: list[str] = []
    notes: list[str] = []


class RankStart(Value, frozen=True):
    """The time and host of a rank's first step. Its elapsed_seconds count from here."""

    rank: int
    unix_seconds: float
    host: str


class PgleProfile(Value, frozen=True):
    """profile.json next to a profile.pbtxt: describes the profile and the profiled program."""

    key: str  # of the request that it was made for
    sha256: str  # of profile.pbtxt
    instructions: int  # that have a cost
    collectives: int  # of the program that was profiled
    covered: int  # of these, that have a cost
    made_by: dict[str, Any]  # by name: settings, versions, mesh, device and XLA flags of that program
    made_in: str = ""  # the run that made it, if another run uses it


class PgleSeen(Value, frozen=True):
    """The evidence of a phase for profile-guided latency estimation: whether it was applied, and why."""

    applied: bool
    reason: str
    profiled_steps: int | None = None  # that the framework profiled by itself
    empty_traces: int | None = None  # of these
    recompile_step: int | None = None
    collectives: int | None = None  # of the measured program, that need a cost
    covered: int | None = None  # of these, that have one
    profile: PgleProfile | None = None  # made by a separate profiling phase


class MlperfEvaluation(Value, frozen=True):
    samples: int | None
    value: float | None


class MlperfOutcome(Value, frozen=True):
    """The outcome of an MLPerf run by its own log. Seconds are by its own clock, from run_start to run_stop."""

    benchmark: str
    file: str  # of the phase's folder
    status: str  # success, aborted, fail or unknown, as run_stop says
    target: float
    reached: bool  # by an evaluation, regardless of the status
    division: str
    evaluations: list[MlperfEvaluation]
    samples: int | None
    seconds: float | None  # time to train, of an aborted run the time until then
    init_seconds: float | None
    parts: dict[str, float]  # training, evaluation, checkpoint, other: they sum up to seconds; empty: not marked
    samples_per_second: float | None


class EachTime(Generic[Made]):
    """Values that are made from the files each time they are asked for, so that those of all ranks fill no memory."""

    def __init__(self, make: Callable[[], Iterator[Made]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Made]:
        return self._make()


def first_rank(steps: Iterable[Step]) -> list[Step]:
    """Return the steps of rank 0, which come first."""
    return list(takewhile(lambda step: step.rank == 0, steps))


class RunRecord(Value, frozen=True):
    """All that the raw files of one phase of one attempt say; nothing counted yet."""

    attempt: int
    facts: list[WorkerFacts]
    steps: Iterable[Step]  # rank by rank, those of rank 0 first
    ends: list[WorkerEnd]
    unreadable: list[str]  # "file:line reason"
    started: list[RankStart] = []
    watched: dict[int, PgleSeen] = {}  # by rank: what its worker saw of the framework's own PGLE
    pgle: PgleSeen | None = None  # what the backend makes of all that; None: the phase had nothing to do with it
    mlperf: MlperfOutcome | None = None  # of a submission's run


# --- summarised -------------------------------------------------------------------------------


Settling = Literal["settled", "still moving", "too short", "not judged"]  # not judged: no window


class Window(Value, frozen=True):
    """The steps that count, the number excluded for each reason, and whether the step time had settled."""

    rule: str
    first_step: int | None
    last_step: int | None
    counted: int
    settled: bool
    excluded: dict[str, int]
    settling: Settling = "not judged"
    drift_percent_per_minute: float | None = None  # of a run that still moves; above 0: it gets slower
    median_off_percent: float | None = None  # how far at most, by that drift, the median is from the settled time
    steps_to_tell: int | None = None  # of a run too short to tell: how many might do


# --- how a framework stores a step --------------------------------------------------------------


class Recompute(Value, frozen=True):
    """The activations that a framework recomputes in the backward pass instead of keeping them."""

    matmuls: frozenset[str] = frozenset()  # of a layer's forward pass, names of ledger.LAYER_MATMULS
    layers: int | None = None  # number of layers that do so; None: all layers


class LayerLoop(Value, frozen=True):
    """Buffers of a program that loops over its layers, in addition to its state, as in XLA's programs for GPUs.

    Found buffer by buffer in compiled programs (docs/explanation/compilation.md).
    """

    reordered_parameters: int  # of a layer: weights that are copied into another order before the loop
    pipelined_layers: int  # gradients of whole layers that wait to be reduced and scattered
    gathers_ahead: bool  # over the loss, the last layer's results stay, and its weights come for the backward pass
    one_hot_tokens: bool  # which token is where, as wide as the vocabulary: kept where the embedding is multiplied
    head_number_bytes: int  # of a number of the head and of its logits, as they are multiplied
    gradient_of_logits_waits: bool  # the gradient of the head is made of it after the loop, and not before


class NumberBytes(Value, frozen=True):
    """The bytes of one number of each kind."""

    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int  # Adam's two moments, and a master weight where the framework keeps one
    matrix_bytes: int | None = None  # a number of a layer's matrices as they travel; None: as it is computed with
    logit_number_bytes: int = 8  # of a logit and its gradient together: both in float32
    reduced_bytes: int | None = None  # of a gradient as replicas sum it; None: as it is stored
    returned_bytes: int | None = None  # of the gradients or new weights that a replica gets back; None: as reduced


class Storage(Value, frozen=True):
    """How a framework stores the state of a training step."""

    saved_activations: frozenset[str]  # kept for the backward pass, by the names of `activation_widths`
    numbers: NumberBytes
    optimizer_replicas: int  # the groups of devices with equal weights that shard the optimizer's state
    gathers_layers: bool  # a layer's sharded weights are gathered on every device for its computation
    writes_attention_scores: bool  # plain attention; fused attention never writes them
    usable_fraction: float  # of a device's memory
    one_byte_activations: frozenset[str] = frozenset()  # those of the saved ones that are kept in fp8
    weights_over_context: bool = False  # the ranks of a context group shard the weights too, so they are not replicas
    whole_states: bool = False  # a tensor group shards hidden states and gathers them to compute
    recompute: Recompute | None = None  # what is computed again in the backward pass; None: the backend does not say
    tensor_exchanges: float | None = None  # of a layer's hidden states in a tensor group; None: no more than needed
    input_only_layers: int = 0  # layers that keep only their input and recompute the rest
    recomputed_together: int = 1  # consecutive such layers that share one saved input and are recomputed together
    absent_layers: int = 0  # layers that keep nothing on the device: it waits in the host's memory
    whole_activations: frozenset[str] = frozenset()  # each device of a tensor group holds all of these
    tables_on_every_stage: bool = False  # embedding and head; the stages then share the tokens of both
    whole_adapters: bool = False  # each device has all adapters, even if the weights are sharded
    uncounted: tuple[str, ...] = ()  # settings that change what is held here, in a way that is not known
    layer_loop: LayerLoop | None = None  # None: the peak is estimated by the largest buffers of each kind


def to_builtins(value: object) -> Any:
    """A value as plain dictionaries, lists and scalars, ready for JSON or YAML."""
    return msgspec.to_builtins(value)


def json_text(value: object) -> str:
    """Readable JSON of a value, keys in their declared order."""
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
