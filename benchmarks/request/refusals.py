"""Refuses a resolved benchmark that cannot work: missing features, short runs, impossible layouts."""

from collections.abc import Iterator

from benchmarks.backend import Backend, GuidedByProfiles, NeedsTransformerEngine, Profiles, UnevenStages
from benchmarks.errors import RequestError, UnknownName
from benchmarks.request.window_rule import check_rule, last_step_wanted
from benchmarks.values import Benchmark


def refuse_what_cannot_work(benchmark: Benchmark, backend: Backend) -> None:
    """Check everything that can be known before the run starts, and raise the first refusal."""
    _refuse_missing_parts(benchmark, backend)
    check_rule(benchmark.window)
    _refuse_short_run(benchmark)
    _refuse_layout(benchmark, backend)
    for refusal in backend.refusals(benchmark):
        raise refusal
    if benchmark.site.slurm is not None:
        for refusal in without_transformer_engine(benchmark, backend):
            raise refusal
    _refuse_slowdown(benchmark, backend)


def without_transformer_engine(benchmark: Benchmark, backend: Backend) -> Iterator[RequestError]:
    """Refuse settings that need Transformer Engine, because Stepmark's virtual environments do not have it."""
    site = benchmark.site
    if site.runtime != "venv" or benchmark.hardware.platform != "cuda":
        return
    needs = backend.needs_transformer_engine(benchmark) if isinstance(backend, NeedsTransformerEngine) else {}
    if needs:
        yield RequestError(
            f"this run needs Transformer Engine, which the virtual environments of site '{site.name}' do not have",
            where=f"runtime: venv of site '{site.name}'",
            why=f"{', '.join(needs)}; use runtime container or python: the package is published only as source",
            next_command=" ".join(needs.values()),
        )


def _refuse_missing_parts(benchmark: Benchmark, backend: Backend) -> None:
    for flag, value, off, known in (
        (
            "pgle",
            benchmark.instruments.pgle,
            "off",
            backend.pgle_ways if isinstance(backend, GuidedByProfiles) else (),
        ),
        ("profile", benchmark.instruments.profile, "none", backend.profiles if isinstance(backend, Profiles) else ()),
    ):
        if value not in (off, *known):
            raise UnknownName(
                f"backend {backend.name} does not support --{flag}={value}",
                value,
                [off, *known],
                where=f"--{flag}",
                why=f"supported: {', '.join([off, *sorted(known)])}",
                next_command=f"--{flag}={off}",
            )
    if benchmark.instruments.profile == "nccl" and benchmark.hardware.kind != "gpu":
        what = f"{benchmark.hardware.title} does not use NCCL, so there is nothing to trace"
        raise RequestError(what, where="--profile=nccl", next_command="--profile=none")


def _refuse_short_run(benchmark: Benchmark) -> None:
    if benchmark.steps < 2 or benchmark.window.startswith("0-"):
        raise RequestError(
            "the first step compiles and cannot be measured",
            where=f"--steps={benchmark.steps} --window={benchmark.window}",
            next_command=f"--steps={max(benchmark.steps, 20)} --window=steady",
        )
    wanted = last_step_wanted(benchmark.window)
    if wanted is not None and benchmark.steps <= wanted:
        raise RequestError(
            f"window {benchmark.window} needs step {wanted}, but the run ends at step {benchmark.steps - 1}",
            where="--window",
            next_command=f"--steps={wanted + 1}",
        )


def _refuse_layout(benchmark: Benchmark, backend: Backend) -> None:
    layout, model = benchmark.parallelism, benchmark.model
    if layout.devices != benchmark.gpus:
        words = " x ".join(f"{size} {word}" for word, size in layout.words())
        raise RequestError(
            f"the layout needs {layout.devices} devices, but --gpus={benchmark.gpus}",
            where="--gpus and --set",
            why=f"{words or 'one device'} = {layout.devices}",
            next_command=f"--gpus={layout.devices}",
        )
    if model.uncounted:
        return
    if model.experts and model.experts.active > model.experts.count:
        raise RequestError(
            f"{model.experts.active} active experts per token, but only {model.experts.count} experts",
            where=f"configs/models/{model.name}.yml: experts",
        )
    stages = layout.pipeline * layout.virtual_pipeline
    layers = backend.layers_in_pipeline(benchmark) if isinstance(backend, UnevenStages) else model.layers
    divisions = [
        ("attention heads", model.attention_heads, "tensor", layout.tensor),
        ("query groups", model.query_groups, "tensor", layout.tensor),
        ("ffn size", model.ffn_hidden_size, "tensor", layout.tensor),
        ("hidden size", model.hidden_size, "fsdp x tensor", layout.fsdp * layout.tensor),
        ("layers", stages if layers is None else layers, "pipeline x virtual pipeline", stages),
        ("sequence length", benchmark.batch.sequence_length, "context", layout.context),
        ("number of experts", model.experts.count if model.experts else 1, "expert", layout.expert),
        ("devices of a pipeline stage", benchmark.gpus // layout.pipeline, "expert", layout.expert),
    ]
    for what, size, axis, share in divisions:
        if size % share:
            raise RequestError(
                f"{what} ({size}) is not divisible by {axis} ({share})",
                where=f"model {model.name}, {benchmark.gpus} devices",
                why=f"each device must get the same share; choose a layout whose {axis} divides {size}",
            )
    length = benchmark.batch.sequence_length
    if length > model.max_sequence_length:
        raise RequestError(
            f"sequence length {length} is longer than the {model.max_sequence_length} of {model.name}",
            where="--set=sequence_length",
            next_command=f"--set=sequence_length={model.max_sequence_length}",
        )


def _refuse_slowdown(benchmark: Benchmark, backend: Backend) -> None:
    """Refuse --inject_slowdown if the measured program cannot slow its steps. This check needs the plan."""
    if not benchmark.instruments.inject_slowdown:
        return
    measured = [phase for phase in backend.plan(benchmark).phases if phase.writes_steps][-1]
    if not any(word.startswith("--inject_slowdown=") for word in measured.command):
        raise RequestError(
            f"{backend.title} with engine {benchmark.engine} does not support --inject_slowdown",
            where=f"--inject_slowdown --backend={backend.name} --engine={benchmark.engine}",
            why="Stepmark cannot run code inside this program to slow its steps",
            next_command="--inject_slowdown=",
        )
