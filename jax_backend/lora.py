"""Convert LoRA adapters to settings of MaxText and settings to adapters, and refuse what MaxText cannot train.

MaxText adds an adapter to each matrix whose module path matches a regular expression. This module finds the matrices
of a layer that a given expression matches. adapters.py creates the adapters inside MaxText.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.errors import RequestError
from benchmarks.model import flops
from benchmarks.request.framework import refuse_unstated, without_effect
from benchmarks.request.settings import positive
from benchmarks.values import Benchmark, Lora, Scalar

RANK, ALPHA, PATHS = "lora.lora_rank", "lora.lora_alpha", "lora.lora_module_path"
SETTINGS = (RANK, ALPHA, PATHS)
FUSED_ATTENTION, FUSED_MLP = "fused_qkv", "fused_mlp"

# A name in flops.ADAPTED_MATRICES -> (MaxText's module, the setting that fuses it, whether the module needs that)
MODULES: Mapping[str, tuple[str, str, bool]] = {
    "query": ("self_attention/query", FUSED_ATTENTION, False),
    "key": ("self_attention/key", FUSED_ATTENTION, False),
    "value": ("self_attention/value", FUSED_ATTENTION, False),
    "query_key_value": ("self_attention/qkv_proj", FUSED_ATTENTION, True),
    "attention_output": ("self_attention/out", "", False),
    "gate": ("mlp/wi_0", FUSED_MLP, False),
    "up": ("mlp/wi_1", FUSED_MLP, False),
    "mlp_input": ("mlp/wi", FUSED_MLP, True),
    "mlp_output": ("mlp/wo", "", False),
}
LAYER = "decoder/layers[^/]*/"  # with a scan, `layers` is one module; without, there are layers_0, layers_1 ...
LAYERS = ("decoder/layers/", "decoder/layers_0/")

# MaxText fails if a larger share of all weights than this setting is unsharded. It never shards adapters.
TOLERANCE = "sharding_tolerance"
OWN_TOLERANCE = 0.02


def of_knobs(knobs: Mapping[str, Scalar]) -> Lora:
    """Return the adapters that MaxText's settings describe."""
    refuse_unstated(knobs, {RANK: f"{RANK}=N", ALPHA: f"{ALPHA}=N", PATHS: "lora_targets=q,k,v,o"})
    return Lora(
        rank=positive(f"--set={RANK}", int(knobs[RANK])),
        alpha=float(knobs[ALPHA]),
        dropout=0.0,  # MaxText does not support it
        targets=_targets(str(knobs[PATHS]), knobs),
    )


def settings_for(lora: Lora) -> dict[str, Scalar]:
    """Return MaxText's settings for these adapters."""
    if lora.dropout:
        raise RequestError("MaxText's adapters do not support dropout", where="--task=lora", why="use dropout 0")
    return {RANK: lora.rank, ALPHA: lora.alpha, PATHS: pattern(lora.targets)}


def pattern(targets: Sequence[str]) -> str:
    """Return a regular expression that matches the module paths of all targets, in the order of MODULES."""
    modules = [module for target, (module, _, _) in MODULES.items() if target in targets]
    parts = []
    for place in dict.fromkeys(module.partition("/")[0] for module in modules):
        names = [name for part, _, name in (module.partition("/") for module in modules) if part == place]
        parts.append(f"{place}/({'|'.join(names)})")
    return f"{LAYER}({'|'.join(parts)})"


def _targets(text: str, knobs: Mapping[str, Scalar]) -> list[str]:
    """Return the matrices of a layer whose full module path matches a regular expression."""
    found = []
    with contextlib.suppress(re.error):
        paths = re.compile(text)
        found = [t for t, module in _modules(knobs).items() if any(paths.fullmatch(one + module) for one in LAYERS)]
    if not found:
        raise RequestError(
            f"{PATHS}={text} does not match a matrix of a layer",
            where=f"--set={PATHS}",
            why=f"a layer has {', '.join(_modules(knobs).values())}",
            next_command="--set=lora_targets=q,k,v,o,gate,up,down",
        )
    return found


def _modules(knobs: Mapping[str, Scalar]) -> dict[str, str]:
    """Return matrix -> MaxText's module for each matrix of a layer. Omit matrices that a fused matrix replaces."""
    rows = MODULES.items()
    return {t: module for t, (module, name, fused) in rows if not name or bool(knobs.get(name)) is fused}


def adapter_settings(benchmark: Benchmark) -> dict[str, Scalar]:
    """Return the settings that a run needs to train adapters; empty if the run trains all weights."""
    if benchmark.lora is None:
        return {}
    adapters = flops.adapter_parameter_count(benchmark.model, benchmark.lora)
    share = adapters / flops.held_parameter_count(benchmark.model, benchmark.lora)
    return {"lora.enable_lora": True, TOLERANCE: round(OWN_TOLERANCE + share, 4)}


# --- what MaxText cannot do -----------------------------------------------------------------------


def refusals(benchmark: Benchmark) -> Iterator[RequestError]:
    task, knobs = benchmark.task, benchmark.settings.knobs
    if benchmark.lora is None:
        for name in SETTINGS:
            if name in benchmark.settings.overrides:
                yield without_effect(name, f"task {task}", "--task=lora")
        return
    # An adapter has its weight's type. The layer adds the adapter's output to its own, so the types must be equal.
    compute, weight = str(knobs.get("dtype", "bfloat16")), str(knobs.get("weight_dtype", "float32"))
    if compute != weight:
        yield RequestError(
            f"adapters have the type {weight}, but the layer computes in {compute}",
            where="--set=weight_dtype",
            why="MaxText does not convert an adapter's output: scanned layers fail, and other layers use float32",
            next_command=f"--set=weight_dtype={compute}",
        )
    if "lora_targets" in benchmark.settings.overrides and pattern(benchmark.lora.targets) != knobs[PATHS]:
        yield RequestError(
            f"this model lacks a matrix of lora_targets={benchmark.settings.overrides['lora_targets']}",
            where="--set=lora_targets",
            why=f"a layer has {', '.join(_modules(knobs).values())}; fused_qkv and fused_mlp change these names",
        )
    if benchmark.batch.gradient_accumulation > 1:
        yield RequestError(
            "MaxText also accumulates the gradients of frozen weights",
            where=f"gradient accumulation {benchmark.batch.gradient_accumulation}, --task={task}",
            why="accumulating them is 50% more work, and the clipping norm then includes the frozen weights",
            next_command="--set=gradient_accumulation=1",
        )
    if benchmark.parallelism.pipeline > 1:
        yield RequestError(
            "MaxText cannot train adapters in a pipeline",
            where=f"--task={task}, a pipeline of {benchmark.parallelism.pipeline}",
            why="MaxText looks for the layers by name, but its pipeline gives them different names",
        )
