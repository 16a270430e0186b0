"""The settings with which MaxText computes a mixture of experts on each kind of device, and the settings that fail.

MaxText 0.2.5 has three programs for experts. Its default, megablox, is a kernel for TPUs that an interpreter runs on
other devices, 170 to 300 times as slow. XLA expands `ragged_dot` to a matmul with all experts, which only a small
model on a CPU can afford. tokamax 0.0.17 replaces megablox on Hopper GPUs only, because it has no kernel for the
gradients of weights on other GPUs (ops/ragged_dot/pallas_mosaic_gpu.py). The dense program works everywhere. It has
a capacity for each expert, drops the tokens above it, and dispatches tokens by matmuls.
"""

from collections.abc import Iterator, Mapping

from benchmarks.errors import RequestError
from benchmarks.values import Benchmark, Scalar

# The settings that select the program for the experts. Each is stated in every run of a model with experts.
TOKAMAX: Mapping[str, Scalar] = {"sparse_matmul": True, "megablox": True, "use_tokamax_gmm": True}
MEGABLOX: Mapping[str, Scalar] = {"sparse_matmul": True, "megablox": True, "use_tokamax_gmm": False}
RAGGED_DOT: Mapping[str, Scalar] = {"sparse_matmul": True, "megablox": False, "use_tokamax_gmm": False}
# XLA:CPU does not support the ragged-all-to-all of the sparse programs. The dense one exchanges tokens by all-to-all.
DENSE: Mapping[str, Scalar] = {"sparse_matmul": False, "megablox": False, "use_tokamax_gmm": False}
EXCHANGES_TOKENS = "moe_dispatch_no_expert_sharding"
CAPACITY_FACTOR = 1.25  # of the tokens that an expert would get with balanced routing

KNOWS_NO_SINKS = ("cudnn_flash_jax", "flash")


def settings(benchmark: Benchmark) -> dict[str, Scalar]:
    """Return the settings that compute the experts on the benchmark's device; a knob overrides each of them."""
    if _is_hopper(benchmark):
        return {**TOKAMAX}
    if benchmark.hardware.kind == "tpu":
        return {**MEGABLOX}
    if benchmark.hardware.kind == "cpu" and benchmark.parallelism.expert == 1:
        return {**RAGGED_DOT}
    capacity = -1.0 if benchmark.model.attention.sinks else CAPACITY_FACTOR  # MaxText refuses one for GPT-OSS
    return {**DENSE, "capacity_factor": capacity, EXCHANGES_TOKENS: True}


def dispatched_rows(benchmark: Benchmark) -> float:
    """Return the size of a device's buffer for the tokens of its experts, relative to that of balanced experts."""
    chosen, experts = {**settings(benchmark), **benchmark.settings.knobs}, benchmark.model.experts
    bound = float(chosen.get("ragged_buffer_factor" if chosen.get("sparse_matmul") else "capacity_factor", -1))
    worst = min(benchmark.parallelism.expert, experts.count / experts.active) if experts else 1.0
    return bound if bound > 0 else worst


def refusals(benchmark: Benchmark) -> Iterator[RequestError]:
    """Refuse what is slow or wrong with experts. The model must have experts."""
    if benchmark.routing == "balanced":
        yield RequestError(
            "MaxText cannot balance the tokens among the experts",
            where="routing=balanced",
            why="its router chooses experts by trained weights or at random, and neither is balanced",
            next_command="--set=routing=learned",
        )
    yield from _unusable_programs(benchmark)
    yield from _without_exchange(benchmark)
    yield from _unsupported_attention(benchmark)


def _unusable_programs(benchmark: Benchmark) -> Iterator[RequestError]:
    kind, device, chosen = benchmark.hardware.kind, benchmark.hardware.title, _chosen(benchmark)
    if chosen == MEGABLOX and kind != "tpu":
        yield RequestError(
            f"megablox=true without tokamax does not run on {device}",
            where="--set=megablox",
            why="megablox is a kernel for TPUs; other devices interpret it, which is 170 to 300 times slower",
            next_command=_another_program(benchmark),
        )
    elif chosen == RAGGED_DOT and kind == "gpu":
        yield RequestError(
            f"megablox=false computes all {_experts(benchmark)} experts for each token on {device}",
            where="--set=megablox",
            why="XLA:GPU expands ragged_dot to a matmul with every expert",
            next_command=_another_program(benchmark),
        )
    elif chosen["use_tokamax_gmm"] and chosen["sparse_matmul"] and kind != "tpu" and not _is_hopper(benchmark):
        yield RequestError(
            f"use_tokamax_gmm=true does not train on {device}",
            where="--set=use_tokamax_gmm",
            why="tokamax has gradient kernels for experts only on Hopper GPUs and TPUs",
            next_command=_another_program(benchmark),
        )
    if chosen["sparse_matmul"] and benchmark.settings.knobs.get("quantization") and kind != "tpu":
        yield RequestError(
            f"dtype {benchmark.dtype} does not apply to the experts",
            where="--dtype",
            why="without a TPU, MaxText's sparse programs multiply the experts in bf16",
            next_command="--dtype=bf16",
        )


def _is_hopper(benchmark: Benchmark) -> bool:
    facts = benchmark.hardware.compile_target
    return facts is not None and facts.compute_capability.startswith("9.")


def _another_program(benchmark: Benchmark) -> str:
    """Return the flags that select the program of this device, without other flags for it."""
    if _is_hopper(benchmark):
        return "--set=megablox=true --set=use_tokamax_gmm=true"
    flags = "--set=use_tokamax_gmm=false --set=megablox=false"
    return flags if benchmark.hardware.kind == "cpu" else f"{flags} --set=sparse_matmul=false"


def _without_exchange(benchmark: Benchmark) -> Iterator[RequestError]:
    chosen, share = _chosen(benchmark), benchmark.parallelism.expert
    if share > 1 and chosen["sparse_matmul"] and benchmark.hardware.kind == "cpu":
        yield RequestError(
            f"sparse_matmul=true cannot divide the experts among {share} devices of a CPU",
            where="--set=sparse_matmul",
            why="XLA:CPU does not support ragged-all-to-all",
            next_command="--set=sparse_matmul=false",
        )
    knobs = {**settings(benchmark), **benchmark.settings.knobs}
    if share > 1 and not chosen["sparse_matmul"] and not knobs.get(EXCHANGES_TOKENS):
        yield RequestError(
            f"{EXCHANGES_TOKENS}=false does not divide the experts among {share} devices",
            where=f"--set={EXCHANGES_TOKENS}",
            why="MaxText then gathers the weights of all experts on each device, as with FSDP, and sends no tokens",
            next_command=f"--set={EXCHANGES_TOKENS}=true",
        )


def _unsupported_attention(benchmark: Benchmark) -> Iterator[RequestError]:
    attention, own = str(benchmark.settings.knobs.get("attention")), benchmark.model.attention
    if own.sinks and benchmark.hardware.kind == "gpu" and attention in KNOWS_NO_SINKS:
        yield RequestError(
            f"attention={attention} does not support the attention sinks of {benchmark.model.name}",
            where="--set=attention",
            why="on GPUs, MaxText has sinks in cudnn_flash_te and dot_product",
            next_command="--set=attention=cudnn_flash_te",
        )


def _chosen(benchmark: Benchmark) -> dict[str, Scalar]:
    """Return the values of the settings that select the program."""
    return {name: {**settings(benchmark), **benchmark.settings.knobs}.get(name, False) for name in TOKAMAX}


def _experts(benchmark: Benchmark) -> int:
    return benchmark.model.experts.count if benchmark.model.experts else 0
