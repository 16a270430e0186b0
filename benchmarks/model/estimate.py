"""Estimates a step time: the time of the nearest published row, scaled by the ratio of the two bounds.

The nearest row has the same precision if possible, then the same framework, then most other traits (GPU, model,
layout, batch), then the nearest scale. `configs/estimate_errors.yml` has the errors of such estimates for published
rows, by the trait in which the nearest row differed.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from benchmarks.backend import Backend, find_backend
from benchmarks.configs import Configs, read_yaml
from benchmarks.errors import RequestError
from benchmarks.model.bounds import Bound, bound
from benchmarks.model.flops import parameter_count
from benchmarks.model.published_rows import Reference, read_references
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Batch, Benchmark, Model, Parallelism, Recipe, Value, changed_benchmark

FILE = "estimate_errors.yml"
SCALE, SERIES, MODEL, GPU, FRAMEWORK, PRECISION = "scale", "series", "model", "GPU", "framework", "precision"
# Bridge does not start without weights; their values do not change its speed.
SETTINGS = {("bridge", "lora"): {"checkpoint.pretrained_checkpoint": "/weights"}}
BATCH = ("micro_batch_size", "gradient_accumulation", "global_batch_size")


class EstimateError(Value, frozen=True):
    """The error in percent of estimates for published rows, each made without the rows that share one trait."""

    kind: str  # that trait; SCALE: the number of GPUs, so that the nearest row is from the same series
    rows: int
    median_percent: float
    worst_percent: float
    experts: bool = False  # whether the rows are of models with experts


class ErrorTable(Value, frozen=True):
    """The contents of `configs/estimate_errors.yml`."""

    date: str
    errors: list[EstimateError]


class Estimate(Value, frozen=True):
    """The expected time of a step, or why it is unknown."""

    seconds: float | None
    why_none: str = ""
    row: str = ""  # the name of the nearest published row
    source: str = ""  # the row's citation
    row_seconds: float | None = None
    ratio: float | None = None  # this benchmark's bound divided by the row's bound
    differs: list[str] = []  # each difference between the row and the benchmark
    error: EstimateError | None = None  # None: unknown


class Traits(NamedTuple):
    """The traits by which a benchmark is compared with a published row."""

    precision: str
    framework: str
    gpu: str
    model: str  # the model's size, so that Llama 3 70B and Llama 3.1 70B are the same
    series: str  # the layout of one replica, and the batch per GPU


KINDS = Traits(PRECISION, FRAMEWORK, GPU, MODEL, SERIES)


class PublishedData(NamedTuple):
    """The published rows and the errors that estimates need."""

    configs: Configs
    rows: list[Reference]  # rows of newer versions first
    errors: list[EstimateError]


def read_published(configs: Configs) -> PublishedData:
    rows = sorted(read_references(configs.root), key=_version, reverse=True)
    path = configs.root / FILE
    return PublishedData(configs, rows, read_yaml(path, ErrorTable).errors if path.exists() else [])


def estimate(asked: Benchmark, found: Bound, published: PublishedData) -> Estimate:
    """Estimate the step time from the nearest row on the same platform."""
    configs, platform = published.configs, asked.hardware.platform
    rows = [row for row in published.rows if configs.hardware(row.hardware).platform == platform]
    if not rows:
        return Estimate(seconds=None, why_none=f"no run on a {platform} device is published")
    rows = [row for row in rows if is_comparable(row, asked.model, asked.routing, configs)]
    if not rows:
        return Estimate(None, why_none=f"no run of {asked.model.name} with {asked.routing} routing is published")
    row = nearest_row(_traits(asked), asked.gpus, rows, configs)
    unlike = unlike_traits(_traits(asked), row_traits(row, configs))
    kinds = [kind for kind, _ in unlike]
    backend = find_backend(row.backend)
    needed = {*BATCH, *SETTINGS.get((asked.engine, asked.task), {}), *find_backend(asked.backend).layout_settings}
    settings = sorted({*asked.settings.overrides} - needed)  # layout and batch are compared by themselves
    off = asked.instruments.pgle == "off"
    pgle = ["PGLE in the published row, --pgle=off in this request"] if row.pgle and off else []
    scale = [] if row.gpus == asked.gpus else [f"{row.gpus} GPUs in the published row, {asked.gpus} in this request"]
    differs = [words for _, words in unlike] + scale + pgle + [f"--set={name}" for name in settings]
    ratio = 1.0
    if kinds or settings or found.seconds is not None:
        try:
            benchmark = as_benchmark(row, configs, backend)
        except RequestError as error:
            return Estimate(seconds=None, why_none=f"the published row {row.name} cannot be resolved: {error.what}")
        storage = backend.storage(benchmark)
        if find_backend(asked.backend).storage(asked).writes_attention_scores and not storage.writes_attention_scores:
            differs.append("fused attention in the published row, unfused in this request")  # no row has both
            why = f"the nearest published row, {row.name}, uses fused attention, but this run does not"
            return Estimate(seconds=None, why_none=why, row=row.name, source=row.citation, differs=differs)
        other = bound(benchmark, storage)
        unknown = [*found.unknown, *other.unknown]
        if unknown or not found.seconds or not other.seconds:
            why = unknown[0] if unknown else "the matmuls"
            return Estimate(seconds=None, why_none=f"a part of the bound is unknown ({why})")
        ratio = found.seconds / other.seconds
    # The largest error among these kinds of difference; without a kind, that of the scale.
    experts = asked.model.experts is not None
    errors = [one for one in published.errors if one.experts == experts and one.kind in (kinds or [SCALE])]
    return Estimate(
        seconds=row.seconds * ratio,
        row=row.name,
        source=row.citation,
        row_seconds=row.seconds,
        ratio=ratio,
        differs=differs,
        error=None if settings else max(errors, key=lambda one: one.median_percent, default=None),
    )


# --- the nearest row ----------------------------------------------------------------------------


def is_comparable(row: Reference, model: Model, routing: str | None, configs: Configs) -> bool:
    """Return whether a row can estimate a model. A model with experts needs a row of the same model and routing,
    because the bound does not know how fast small grouped matmuls and the exchange of tokens are.
    """
    trained = row.trained_model(configs)
    return trained.experts is None if model.experts is None else (trained, row.routing) == (model, routing)


def nearest_row(traits: Traits, gpus: int, rows: Sequence[Reference], configs: Configs) -> Reference:
    """Return the nearest row; the first one if several are equally near."""

    def distance(row: Reference) -> tuple[bool, bool, int, float]:
        kinds = [kind for kind, _ in unlike_traits(traits, row_traits(row, configs))]
        return PRECISION in kinds, FRAMEWORK in kinds, len(kinds), abs(math.log2(row.gpus / gpus))

    return min(rows, key=distance)


def unlike_traits(ours: Traits, theirs: Traits) -> list[tuple[str, str]]:
    """Return the kind of each difference, with a text that names both sides."""
    pairs = zip(KINDS, theirs, ours, strict=True)
    return [(kind, f"{kind}: {a} in the published row, {b} in this request") for kind, a, b in pairs if a != b]


def _traits(asked: Benchmark) -> Traits:
    return Traits(
        asked.dtype,
        f"{asked.engine} {asked.task}",
        asked.hardware.name,
        _size(asked.model),
        _series(asked.batch, asked.parallelism, asked.gpus),
    )


def row_traits(row: Reference, configs: Configs) -> Traits:
    return Traits(
        row.dtype,
        f"{row.engine} {row.task}",
        row.hardware,
        _size(row.trained_model(configs)),
        _series(row, row.parallelism, row.gpus),
    )


def _size(model: Model) -> str:
    return model.name if model.uncounted else f"{parameter_count(model) / 1e9:.1f}B"


def _series(batch: Batch | Reference, share: Parallelism, gpus: int) -> str:
    """Describe a replica's layout and the batch per GPU. Data and FSDP grow with the scale, so they are excluded."""
    layout = msgspec.structs.replace(share, data=1, fsdp=1).short().removesuffix(" DP1")
    a_gpu = batch.global_batch_size / gpus
    return f"{layout} MBS{batch.micro_batch_size} {batch.sequence_length} x {a_gpu:.6g} tokens per GPU"


def _version(row: Reference) -> tuple[tuple[int, ...], bool]:
    """Return a sort key that is larger for newer versions. A tag may also archive a page of earlier figures."""
    return tuple(map(int, re.findall(r"\d+", row.tag))), "archive" not in row.file


# --- a published row as a benchmark -------------------------------------------------------------


def as_benchmark(row: Reference, configs: Configs, backend: Backend) -> Benchmark:
    """Return a published row as a benchmark. Raise RequestError if no recipe is similar enough.

    A row states a model, a layout and a batch, but not which activations are kept for the backward pass. The recipe
    for the row's backend, task and device decides that. If the row's model or GPU has no recipe, use the recipe
    of another model or GPU, with the row's model and GPU.
    """
    model, hardware = row.trained_model(configs), configs.hardware(row.hardware)
    benchmark = resolve(_request(row, configs), configs, backend)
    return changed_benchmark(
        benchmark,
        model=model,
        hardware=hardware,
        dtype=row.dtype,
        routing=row.routing or None,
        gpus=row.gpus,
        nodes=max(1, row.gpus // hardware.devices_per_node),
        parallelism=row.parallelism,
        sequence_length=row.sequence_length,
        micro_batch_size=row.micro_batch_size,
        gradient_accumulation=row.global_batch_size // (row.micro_batch_size * row.data * row.fsdp),
        global_batch_size=row.global_batch_size,
    )


def _request(row: Reference, configs: Configs) -> Request:
    """Return a request for the most similar recipe, at the first scale for which the recipe has a layout."""
    platform = configs.hardware(row.hardware).platform
    offered = [
        (recipe, name, dtypes)
        for recipe in configs.recipes(row.backend)
        for name, dtypes in recipe.dtypes.items()
        if (recipe.engine, recipe.task) == (row.engine, row.task)
        and name != "*"
        and configs.hardware(name).platform == platform
    ]
    # Without a recipe in NVFP4, one in MXFP8 keeps the same activations.
    similar = (row.dtype, "mxfp8") if row.dtype == "nvfp4" else (row.dtype,)
    dtype = next((one for one in similar if any(one in dtypes for *_, dtypes in offered)), row.dtype)
    fitting = [(recipe, name) for recipe, name, dtypes in offered if dtype in dtypes]
    if not fitting:
        raise RequestError(
            f"{row.engine} has no recipe for {row.task} {row.dtype} on {row.hardware} or a similar device",
            where=f"configs/references: {row.name}",
            why="only a recipe states which activations are kept for the backward pass",
        )

    def distance(one: tuple[Recipe, str]) -> tuple[bool, bool, bool, bool]:
        recipe, name = one
        is_general = len(recipe.hardware) > 2  # a recipe for several GPU generations, which no published program uses
        unlike = (configs.model(recipe.models[0]).experts is None) != (configs.model(row.model).experts is None)
        return row.model not in recipe.models, unlike, is_general, row.hardware != name

    recipe, on = min(fitting, key=distance)
    return Request(
        backend=row.backend,
        engine=recipe.engine,
        model=row.model if row.model in recipe.models else recipe.models[0],
        task=row.task,
        dtype=dtype,
        hardware=on,
        gpus=recipe.layouts[0].gpus,
        recipe=recipe.name,
        settings=SETTINGS.get((recipe.engine, recipe.task), {}),
    )
