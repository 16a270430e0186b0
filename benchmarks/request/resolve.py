"""Resolves flags and configs to one immutable Benchmark, or to one refusal. It starts nothing and needs no machine.

It reads the secret variables of the shell (secret_rules.py) only to refuse flags that contain their values.
"""

import itertools
import shlex
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args

import msgspec

from benchmarks.backend import (
    Backend,
    CompilerFlags,
    FlagGroup,
    RefusesHardware,
    TrainsAdapters,
    require_capability,
)
from benchmarks.configs import Configs
from benchmarks.errors import LIST_COMMAND, RequestError, UnknownName, closest
from benchmarks.request.refusals import refuse_what_cannot_work
from benchmarks.request.settings import FLAG_GROUP, ROUTING, check_knobs, positive, sort_settings
from benchmarks.secret_rules import refuse_secrets, secrets_here
from benchmarks.values import (
    QUANTIZED,
    SUBMISSION_ENGINE,
    Batch,
    Benchmark,
    Hardware,
    Instruments,
    Layout,
    MeasuredPeak,
    Model,
    Overlay,
    Parallelism,
    Peak,
    Profiling,
    Recipe,
    RecipeReference,
    Routing,
    RunSettings,
    Scalar,
    Site,
    Value,
    When,
    changed_benchmark,
    to_builtins,
)

ANY = "*"
UNKNOWN_IS_LIKE = "a100"  # unknown GPUs use the recipes of this device, which have bf16 but no fp8


class ProfilerOptions(Value, frozen=True):
    """The flags that begin with --profile_. None means the default of the task."""

    ranks: str | None = None  # such as 0,1,8-15
    start_step: int | None = None
    stop_step: int | None = None
    gpu_metrics: bool = False
    cpu: bool = False


class RuntimeOptions(Value, frozen=True):
    """The flags that choose how the run's programs are started. None means the site's value."""

    runtime: str | None = None
    python: str | None = None  # the path of an interpreter
    image: str | None = None  # a container image, or the path of its file


class Request(Value, frozen=True):
    """The flags that the user typed. None means the recipe's value."""

    backend: str
    model: str
    task: str = "pretrain"
    engine: str | None = None
    dtype: str | None = None
    hardware: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    site: str = "local"
    steps: int | None = None
    window: str | None = None
    profile: str = "none"
    pgle: str = "off"
    profiler: ProfilerOptions = ProfilerOptions()
    data: str | None = None  # a folder that holds a dataset
    settings: dict[str, str] = {}
    recipe: str | None = None  # the recipe to use instead of the first that fits
    measured_peak: MeasuredPeak | None = None  # the contents of the --measured_peak file
    inject_slowdown: float = 0.0
    runs_in: RuntimeOptions = RuntimeOptions()


# --- lists in flags, such as --gpus=64,128 ------------------------------------------------------

# In a sweep, the first flag varies slowest and `pgle` fastest, so that runs with and without PGLE are neighbours.
LISTED = ("backend", "model", "task", "engine", "dtype", "hardware", "gpus", "nodes", "pgle")
NUMBERS = ("gpus", "nodes")


def requests_of(lists: Mapping[str, str | None], rest: Mapping[str, Any]) -> list[Request]:
    """Return a request for every combination of the values of the flags in LISTED, in the order typed.

    `rest` has the other flags, which are the same for all requests.
    """
    axes = [_values_of(name, lists.get(name)) for name in LISTED]
    typed = [name for name in LISTED if lists.get(name) is not None]
    combinations = itertools.product(*(axis for axis in axes if axis))
    return [msgspec.convert({**rest, **dict(zip(typed, values, strict=True))}, Request) for values in combinations]


def _values_of(name: str, text: str | None) -> list[int | str]:
    if text is None:
        return []
    words = [word.strip() for word in text.split(",")]
    if "" in words:
        raise RequestError(f"--{name}={text} has an empty value", where=f"--{name}")
    values: list[int | str] = [whole_number(name, word) if name in NUMBERS else word for word in words]
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        what, once = f"--{name}={text} has {twice} twice", ",".join(map(str, dict.fromkeys(values)))
        why = "--repeats=N runs every cell N times"
        raise RequestError(what, where=f"--{name}", why=why, next_command=f"--{name}={once}")
    return values


def whole_number(name: str, word: str) -> int:
    digits = word.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 9:
        what = f"--{name}: '{word}' is not a whole number"
        raise RequestError(what, where=f"--{name}", next_command=f"--{name}=8")
    return int(word)


# --- a request as a command ---------------------------------------------------------------------


def command_of(request: Request, command: str) -> str:
    """Return the command line that a user would type for a request."""
    named = ("backend", "engine", "model", "task", "dtype", "hardware", "gpus", "nodes", "recipe", "site")
    usual = Request(backend="", model="")
    typed = [(name, value) for name in named if (value := getattr(request, name)) != getattr(usual, name)]
    settings = [("set", f"{key}={text}") for key, text in request.settings.items()]
    words = [shlex.quote(f"--{name}={value}") for name, value in (*typed, *settings)]
    return " ".join([f"python launch/{command}", *words])


def request_of(benchmark: Benchmark, settings: dict[str, str]) -> Request:
    """Return the request for a benchmark, with `settings` instead of the settings that the benchmark has."""
    same = {name: getattr(benchmark, name) for name in ("backend", "task", "engine", "dtype", "gpus")}
    names = {name: getattr(benchmark, name).name for name in ("model", "hardware", "site", "recipe")}
    usual = _nodes_needed(benchmark.gpus, benchmark.hardware)
    nodes = benchmark.nodes if benchmark.nodes != usual else None
    return Request(**same, **names, nodes=nodes, settings=settings)


class NoLayoutError(RequestError):
    """The recipe fits, but it has no layout for this number of devices."""

    def __init__(self, recipe: Recipe, gpus: int, hardware: Hardware) -> None:
        self.gpus = gpus
        self.scales = scales(recipe, hardware)
        super().__init__(
            f"recipe {recipe.name} has no layout for {gpus} devices of {hardware.name}",
            where=f"--gpus={gpus}",
            why=f"it has layouts for {', '.join(map(str, self.scales))} devices; for another number, use --set with "
            + ", ".join(sorted(recipe.layouts[0].knobs)),
            next_command=f"--gpus={min(self.scales, key=lambda scale: abs(scale - gpus))}",
        )


def resolve(
    request: Request,
    configs: Configs,
    backend: Backend,
    kept_profile: Callable[[Benchmark], str] = lambda _: "",
) -> Benchmark:
    """Return the benchmark for a request. Raise RequestError, or NoLayoutError if only a layout is missing.

    `kept_profile` returns the key of the PGLE profile that an earlier run made for a benchmark, or an empty text.
    """
    _refuse_secrets(request)
    model = configs.model(request.model)
    site = with_runtime(configs.site(request.site), request.runs_in.runtime, request.runs_in.python)
    nodes_are_alike = site.slurm is not None and len(site.slurm.hardware) == 1
    device = request.hardware or (site.slurm.hardware[0] if site.slurm and nodes_are_alike else None)
    hardware_wanted = configs.hardware(device) if device else None
    recipe = choose_recipe(request, configs, hardware_wanted, backend)
    hardware = hardware_wanted or configs.hardware(recipe.defaults.hardware)
    alike = like(hardware, configs, site, request.backend)
    dtype = _choose_dtype(request.dtype, recipe, hardware, alike)
    _refuse_foreign_hardware(site, hardware)
    gpus = positive("--gpus", gpus_wanted(request, recipe, hardware))

    adapters, framework_settings = _adapter_words(request)
    routing = _choose_routing(request.settings.get(ROUTING), recipe, model)
    own, environment_set, xla_set, knobs_set = sort_settings(framework_settings, backend)
    group = FlagGroup(flags={}, environment={})
    if xla_set:
        what, where = "does not use XLA, so it has no XLA flags", f"--set={next(iter(xla_set))}"
        compiler = require_capability(backend, CompilerFlags, what, where)
        if name := xla_set.pop(FLAG_GROUP, None):
            group = compiler.flag_group(name, hardware)
    row = next((row for row in layouts_on(recipe, hardware) if row.gpus == gpus), None)
    if row is None and not backend.layout_settings & knobs_set.keys():  # otherwise --set defines the layout
        raise NoLayoutError(recipe, gpus, hardware)
    layout = row.knobs if row else {}
    nodes = _choose_nodes(request.nodes, gpus, hardware)
    overlays = [one for one in recipe.overlays if matches(one.when, model.name, dtype, alike, gpus)]
    knobs = {**_merged(overlays, "knobs"), **layout, **knobs_set}
    check_knobs({**_merged(overlays, "knobs"), **layout}, backend, f"configs/recipes/{recipe.name}.yml: knobs")
    of_model = model.backend_settings.get(backend.name, {})
    check_knobs(of_model, backend, f"configs/models/{model.name}.yml: backend_settings")
    if adapters:
        knobs |= _adapter_settings(adapters, knobs_set, knobs, recipe.engine, backend)
    parallelism = backend.parallelism(knobs, gpus)
    batch = _choose_batch(own, recipe, parallelism)
    steps = positive("--steps", request.steps if request.steps is not None else recipe.defaults.steps)
    domain = hardware.nvlink_domain  # not used for MLPerf submissions, whose own configuration sets the variables
    # An MLPerf benchmark trains adapters if its recipe has settings for them.
    adapts = request.task == "lora" or (request.task == "mlperf" and any(key.startswith("peft.") for key in knobs))
    benchmark = Benchmark(
        backend=backend.name,
        engine=recipe.engine,
        model=model,
        task=request.task,
        dtype=dtype,
        hardware=hardware,
        site=site,
        gpus=gpus,
        nodes=nodes,
        parallelism=parallelism,
        lora=_adapting(backend).lora(knobs) if adapts else None,
        batch=batch,
        steps=steps,
        window=request.window or recipe.window,
        data=request.data or recipe.data,
        settings=RunSettings(
            knobs=knobs,
            environment={
                **(domain.environment if domain and not recipe.engine.startswith(SUBMISSION_ENGINE) else {}),
                **_merged(overlays, "environment"),
                **group.environment,
                **site.environment,
                **environment_set,
            },
            xla_flags={**_merged(overlays, "xla_flags"), **group.flags, **xla_set},
            overrides=request.settings,
            image=_image(request, site, recipe.engine, hardware, backend),
        ),
        recipe=_reference(recipe, gpus, hardware, backend),
        instruments=Instruments(
            profile=request.profile,
            profiling=_profiling(request, configs, gpus, steps),
            pgle=request.pgle,
            inject_slowdown=request.inject_slowdown,
        ),
        measured_peaks=peaks_of_devices(request.measured_peak, hardware, site, dtype, gpus, nodes),
        routing=routing,
    )
    refuse_what_cannot_work(benchmark, backend)
    if benchmark.instruments.pgle == "off":
        return benchmark
    return changed_benchmark(benchmark, pgle_profile=kept_profile(benchmark))


def _refuse_secrets(request: Request) -> None:
    """Refuse secrets first: messages could repeat them, and the run folder stores the typed flags."""
    known = secrets_here()
    refuse_secrets(request.settings, "--set", known)
    refuse_secrets(to_builtins(request), "the request:", known)


def _adapter_words(request: Request) -> tuple[dict[str, str], Mapping[str, str]]:
    """Return the common LoRA settings in --set (lora_rank, ...) and all other settings."""
    if not any(name.startswith("lora_") for name in request.settings):
        return {}, request.settings
    from benchmarks.request import lora_words

    return lora_words.sorted_out(request.settings, request.task)


def _adapter_settings(
    words: dict[str, str], typed: dict[str, Scalar], knobs: dict[str, Scalar], engine: str, backend: Backend
) -> dict[str, Scalar]:
    """Return the backend's settings for the common LoRA settings. Refuse a setting that is given in both forms."""
    from benchmarks.request import lora_words

    own = _adapting(backend).lora_settings_for(engine, lora_words.changed(_adapting(backend).lora(knobs), words))
    set_twice = sorted(own.keys() & typed.keys())
    if set_twice:
        raise RequestError(
            f"{set_twice[0]} is already set by {', '.join(words)}; pass only one of them",
            where=f"--set={set_twice[0]}",
            next_command=f"--set={set_twice[0]}",
        )
    return own


def _adapting(backend: Backend) -> TrainsAdapters:
    return require_capability(backend, TrainsAdapters, "does not train adapters", "--task=lora")


def peaks_of_devices(
    found: MeasuredPeak | None, hardware: Hardware, site: Site, dtype: str, gpus: int, nodes: int
) -> dict[str, Peak]:
    """Return the peak of a single device of the run, for each precision.

    The virtual devices of a CPU share the measured peak of their machine equally. On a local site, all processes run
    on one machine; on a cluster of CPUs, each node is one machine.
    """
    if found is None:
        return {}
    known = [name.lower() for name in hardware.device_names]
    if found.platform != hardware.platform or found.device_kind.lower() not in known:
        raise RequestError(
            f"the peak was measured on a different device, {found.device_kind} ({found.platform})",
            where=f"--measured_peak={found.file} --hardware={hardware.name}",
            why=f"{hardware.title} is {' or '.join(hardware.device_names)} ({hardware.platform})",
            next_command=f"python launch/peak.py --hardware={hardware.name}",
        )
    if dtype not in found.peaks:
        raise RequestError(
            f"the file has no measured peak for {dtype}",
            where=f"--measured_peak={found.file}",
            why=f"the file has peaks for {', '.join(found.peaks)}",
            next_command=f"--dtype={next(iter(found.peaks))}",
        )
    machines = nodes if site.slurm is not None else 1
    if hardware.kind != "cpu" or machines == gpus:
        return found.peaks
    of = "the machine" if machines == 1 else f"each of {machines} machines"
    shared = f"shared by {gpus // machines} virtual devices"
    return {
        name: Peak(
            tflops=peak.tflops * machines / gpus,
            source=f"{peak.source}; {peak.tflops:.4g} TFLOP/s of {of}, {shared}",
        )
        for name, peak in found.peaks.items()
    }


def _profiling(request: Request, configs: Configs, gpus: int, steps: int) -> Profiling | None:
    if request.profile == "none" and request.profiler == ProfilerOptions():
        return None
    typed = msgspec.structs.asdict(request.profiler)
    from benchmarks.request.profiling import choose_profiling, profile_defaults

    return choose_profiling(request.profile, typed, profile_defaults(configs, request.task), gpus, steps)


def _image(request: Request, site: Site, engine: str, hardware: Hardware, backend: Backend) -> str:
    if site.runtime != "container" and not request.runs_in.image:
        return ""
    from benchmarks.request import images

    return images.choose(request.runs_in.image, site, engine, backend.environment(engine).image, hardware)


def _reference(recipe: Recipe, gpus: int, hardware: Hardware, backend: Backend) -> RecipeReference:
    rows = layouts_on(recipe, hardware)
    own = next((backend.parallelism(row.knobs, gpus) for row in rows if row.gpus == gpus), None)
    return RecipeReference(
        name=recipe.name,
        source=recipe.source,
        date=recipe.date,
        global_batch_size=_choose_batch({}, recipe, own).global_batch_size if own else None,
    )


# --- choosing -----------------------------------------------------------------------------------


def _named(request: Request, configs: Configs) -> list[Recipe]:
    if request.recipe is None:
        return configs.recipes(request.backend)
    recipes = configs.recipes()
    found = [recipe for recipe in recipes if recipe.name == request.recipe]
    if not found:
        raise UnknownName(
            f"unknown recipe '{request.recipe}'",
            request.recipe,
            [recipe.name for recipe in recipes],
            where="--recipe",
            next_command=LIST_COMMAND,
        )
    return found


def choose_recipe(request: Request, configs: Configs, hardware: Hardware | None, backend: Backend) -> Recipe:
    """Return the recipe for the request, which must fit the hardware and the dtype.

    Recipes that name the model come first, then those with a layout for the GPUs, then those of smaller scale.
    """
    site = configs.site(request.site)
    recipes = _named(request, configs)
    near = like(hardware, configs, site, request.backend) if hardware else None
    engine = _choose_engine(request, recipes, backend)
    if hardware and isinstance(backend, RefusesHardware):
        refusal = backend.refuses_hardware(engine, hardware)
        if refusal is not None:
            raise refusal
    with_engine = f" with engine '{request.engine}'" if request.engine else ""
    of_backend = [r for r in recipes if (r.backend, r.engine, r.task) == (request.backend, engine, request.task)]
    if not of_backend:
        tasks = sorted({r.task for r in recipes if r.backend == request.backend})
        raise RequestError(
            f"backend '{request.backend}' has no recipe for task '{request.task}'{with_engine}",
            where="--task",
            why=f"the backend has recipes for: {', '.join(tasks) or 'no task'}",
            next_command=LIST_COMMAND,
        )
    fitting = [r for r in of_backend if request.model in r.models] + [r for r in of_backend if ANY in r.models]
    home = near or (fitting[0].defaults.hardware if fitting else "")
    on_hardware = [r for r in fitting if home in r.hardware or ANY in r.hardware]
    if not on_hardware:
        what = f"no {request.backend} {request.task} recipe trains model '{request.model}'"
        models = ", ".join(sorted({model for r in of_backend for model in r.models}))
        known = ", ".join(sorted({name for r in fitting for name in r.hardware}))
        same = (r for r in recipes if (r.backend, r.task) == (request.backend, request.task))
        other = next((r.engine for r in same if request.model in r.models and not fitting), None)
        raise RequestError(
            what + (f" on '{hardware.name if hardware else home}'" if fitting else "") + with_engine,
            where="--hardware" if fitting else "--model",
            why=f"it has recipes for {known}" if fitting else f"it has recipes for {models}",
            next_command=f"--engine={other}" if other else LIST_COMMAND,
        )
    in_dtype = [r for r in on_hardware if request.dtype in (None, *_dtypes(r, home))]
    if not in_dtype:
        valid = list(dict.fromkeys(dtype for r in on_hardware for dtype in _dtypes(r, home)))
        if valid == _dtypes(on_hardware[0], home):
            return on_hardware[0]  # the caller then refuses the dtype and names the recipe's precisions
        raise UnknownName(
            f"no {request.backend} recipe of {request.model} has {request.dtype} on {home}{with_engine}",
            request.dtype or "",
            valid,
            where=f"--dtype={request.dtype}",
            next_command=f"--dtype={valid[0]}",
        )
    return min(in_dtype, key=lambda r: _misfits(r, request, hardware))  # if several are equal, the first


def other_recipes(benchmark: Benchmark, configs: Configs) -> list[str]:
    """Return the names of the other recipes that fit a benchmark."""
    b, near = benchmark, like(benchmark.hardware, configs, benchmark.site, benchmark.backend)
    return [
        recipe.name
        for recipe in configs.recipes(b.backend)
        if recipe.name != b.recipe.name and (recipe.engine, recipe.task) == (b.engine, b.task)
        if b.model.name in recipe.models and near in recipe.hardware
        if b.dtype in _dtypes(recipe, near) and b.gpus in scales(recipe, b.hardware)
    ]


def _misfits(recipe: Recipe, request: Request, hardware: Hardware | None) -> tuple[bool, bool, int]:
    sizes = scales(recipe, hardware)
    return request.model not in recipe.models, request.gpus is not None and request.gpus not in sizes, max(sizes)


def _choose_engine(request: Request, recipes: list[Recipe], backend: Backend) -> str:
    """Return the requested engine, or the first that has a recipe for the task and, if possible, for the model."""
    if request.engine is None:
        own = [r for r in recipes if (r.backend, r.task) == (backend.name, request.task)]
        naming = {r.engine for r in own if request.model in r.models}
        wanted = naming or {r.engine for r in own}
        return next((engine for engine in backend.engines if engine in wanted), backend.engines[0])
    if request.engine not in backend.engines:
        raise UnknownName(
            f"backend '{backend.name}' has no engine '{request.engine}'",
            request.engine,
            backend.engines,
            where="--engine",
            why=f"the engines are: {', '.join(backend.engines)}",
            next_command=f"--engine={backend.engines[0]}",
        )
    return request.engine


def _choose_dtype(wanted: str | None, recipe: Recipe, hardware: Hardware, alike: str) -> str:
    allowed = _dtypes(recipe, alike)
    if not allowed:
        raise RequestError(
            f"recipe {recipe.name} has no precision for {alike}",
            where=f"configs/recipes/{recipe.name}.yml",
            why="every name in its `hardware` needs a row in its `dtypes`",
        )
    if wanted is None:
        if recipe.defaults.dtype in allowed:
            return recipe.defaults.dtype
        return allowed[0]
    if hardware.kind != "cpu" and wanted in QUANTIZED and wanted not in hardware.peaks:
        raise RequestError(
            f"{hardware.title} does not support {wanted}",
            where=f"--dtype={wanted}",
            next_command=f"--dtype={allowed[0]}",
        )
    if wanted not in allowed:
        raise UnknownName(
            f"recipe {recipe.name} has no {wanted} on {hardware.name}",
            wanted,
            allowed,
            where=f"--dtype={wanted}",
            next_command=f"--dtype={closest(wanted, allowed) or allowed[0]}",
        )
    return wanted


def like(hardware: Hardware, configs: Configs, site: Site, backend: str | None = None) -> str:
    """Return the device type whose recipes apply: a100 if the peak is unknown or, without Slurm, no recipe exists.

    Stepmark reads the recipes of `backend` first, because one of them is often enough.
    """
    if hardware.platform != "cuda":
        return hardware.name
    named = site.slurm is not None or any(
        hardware.name in recipe.hardware for of in (backend, None) for recipe in configs.recipes(of)
    )
    return hardware.name if hardware.peaks and named else UNKNOWN_IS_LIKE


def layouts_on(recipe: Recipe, hardware: Hardware | None) -> list[Layout]:
    """Return the recipe's layouts for a device; all its layouts if it does not name the device."""
    if hardware is None or hardware.name not in recipe.hardware:
        return recipe.layouts
    return [row for row in recipe.layouts if row.hardware is None or hardware.name in row.hardware]


def scales(recipe: Recipe, hardware: Hardware | None) -> list[int]:
    return [row.gpus for row in layouts_on(recipe, hardware)]


def default_gpus(recipe: Recipe, hardware: Hardware) -> int:
    """Return the recipe's default number of GPUs, or the next smaller one with a layout for this hardware."""
    usual = recipe.defaults.gpus
    return max((gpus for gpus in scales(recipe, hardware) if gpus <= usual), default=usual)


def _dtypes(recipe: Recipe, hardware: str) -> list[str]:
    return recipe.dtypes.get(hardware, recipe.dtypes.get(ANY, []))


def _refuse_foreign_hardware(site: Site, hardware: Hardware) -> None:
    if site.slurm is not None and hardware.name not in site.slurm.hardware:
        raise RequestError(
            f"the nodes of site '{site.name}' are not {hardware.title}",
            where=f"--hardware={hardware.name} --site={site.name}",
            why=f"the site has {', '.join(site.slurm.hardware)}",
            next_command=f"--hardware={site.slurm.hardware[0]}",
        )


def gpus_wanted(request: Request, recipe: Recipe, hardware: Hardware) -> int:
    """Return --gpus, otherwise the devices of --nodes, otherwise the recipe's default."""
    if request.gpus is not None:
        return request.gpus
    if request.nodes is not None:
        return positive("--nodes", request.nodes) * (1 if hardware.kind == "cpu" else hardware.devices_per_node)
    return default_gpus(recipe, hardware)


def _choose_nodes(wanted: int | None, gpus: int, hardware: Hardware) -> int:
    nodes = wanted if wanted is not None else _nodes_needed(gpus, hardware)
    positive("--nodes", nodes)
    if gpus % nodes:
        raise RequestError(
            f"{gpus} devices cannot be divided evenly among {nodes} nodes",
            where="--nodes",
            why=f"a node has {hardware.devices_per_node} x {hardware.title}",
            next_command=f"--nodes={_nodes_needed(gpus, hardware)}",
        )
    if hardware.kind != "cpu" and gpus // nodes > hardware.devices_per_node:
        raise RequestError(
            f"{gpus} {hardware.name} do not fit on {nodes} nodes",
            where="--nodes",
            why=f"a node has {hardware.devices_per_node}",
            next_command=f"--nodes={_nodes_needed(gpus, hardware)}",
        )
    return nodes


def _nodes_needed(gpus: int, hardware: Hardware) -> int:
    return 1 if hardware.kind == "cpu" else -(-gpus // hardware.devices_per_node)


def matches(when: When, model: str, dtype: str, hardware: str, gpus: int) -> bool:
    return (
        (when.model is None or model in when.model)
        and (when.dtype is None or dtype in when.dtype)
        and (when.hardware is None or hardware in when.hardware)
        and (when.gpus_from is None or gpus >= when.gpus_from)
        and (when.gpus_below is None or gpus < when.gpus_below)
    )


def _merged(overlays: list[Overlay], part: str) -> dict[str, str]:
    merged: dict[str, str] = {}
    for overlay in overlays:
        merged.update(getattr(overlay, part))
    return merged


def _choose_routing(wanted: str | None, recipe: Recipe, model: Model) -> Routing | None:
    """Return how the router chooses experts: as --set=routing asks, otherwise as the recipe states."""
    words = get_args(Routing)
    if wanted is not None and model.experts is None:
        raise RequestError(f"{model.name} has no experts", where=f"--set={ROUTING}={wanted}")
    if wanted is not None and wanted not in words:
        raise RequestError(
            f"routing={wanted} is not {' or '.join(words)}",
            where=f"--set={ROUTING}",
            next_command=f"--set={ROUTING}={words[0]}",
        )
    if model.experts is None:
        return None
    return cast(Routing, wanted) if wanted else recipe.routing or "learned"


def _choose_batch(own: Mapping[str, int], recipe: Recipe, parallelism: Parallelism) -> Batch:
    """Return the batch. Its sizes must agree with each other and with the layout."""
    length = own.get("sequence_length", recipe.sequence_length)
    micro = own.get("micro_batch_size", recipe.micro_batch_size)
    accumulation = own.get("gradient_accumulation", recipe.gradient_accumulation)
    replicas = parallelism.data * parallelism.fsdp
    wanted = own.get("global_batch_size", micro * accumulation * replicas)
    if "micro_batch_size" not in own:
        micro = wanted // (accumulation * replicas)
        divisor = f"{replicas} (data x fsdp) x {accumulation} (gradient accumulation)"
    else:
        divisor = f"{micro} (micro batch) x {replicas} (data x fsdp) x accumulation"
        if "gradient_accumulation" not in own:
            accumulation = wanted // (micro * replicas)
    if micro * accumulation * replicas != wanted:
        raise RequestError(
            f"a global batch of {wanted} sequences is not divisible by the layout",
            where="--set=global_batch_size",
            why=f"the global batch must be a multiple of {divisor}",
        )
    return Batch(
        sequence_length=length,
        micro_batch_size=micro,
        gradient_accumulation=accumulation,
        global_batch_size=wanted,
    )


def with_runtime(site: Site, runtime: str | None, python: str | None) -> Site:
    """Return the site with the runtime and interpreter that the user passed, without settings for other runtimes."""
    if python is not None and runtime not in (None, "python"):
        where = f"--runtime={runtime} --python={python}"
        raise RequestError("--python needs --runtime=python", where=where, next_command="--runtime=python")
    chosen = "python" if python is not None else runtime or site.runtime
    interpreter = (python or site.python) if chosen == "python" else None
    container = site.container if chosen == "container" else None
    if chosen == "container" and site.slurm is not None and container is None:
        raise RequestError(
            f"site '{site.name}' has no container settings",
            where=f"--runtime=container --site={site.name}",
            why="on Slurm, `images` in the section `container` of the site file must name the folder with the images",
            next_command=f"--runtime={site.runtime}",
        )
    if chosen == "python" and interpreter is None:
        what, why = "--runtime=python needs an interpreter", "pass --python=PATH of a Python with the framework"
        raise RequestError(what, where=f"--runtime=python --site={site.name}", why=why)
    return msgspec.structs.replace(
        site,
        runtime=chosen,
        container=container,
        images=site.images if chosen == "container" else {},
        python=interpreter,
        typed=[flag for flag, typed in (("--runtime", runtime), ("--python", python)) if typed is not None],
    )
