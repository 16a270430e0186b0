"""The request to a trace program, its report, and a comparison of the report with the formulas. No I/O.

A trace runs a framework's own training step once for each pipeline stage, with tensors that have no data.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import Any

from benchmarks.compilation.program import Kind, StepProgram
from benchmarks.model import flops, ledger
from benchmarks.values import Benchmark, Model, Value

PARAMETERS, KEPT, LOGITS, TEMPORARIES = "parameters", "kept activations", "logits", "temporaries"
# Kind of memory -> the corresponding parts of the formula (capacity.memory_by_part). The last kind has the rest.
PARTS: dict[str, tuple[str, ...]] = {
    PARAMETERS: ("parameters",),
    "gradients": ("gradients",),
    "optimizer": ("optimizer",),
    KEPT: ("saved_activations", "attention_scores"),
    LOGITS: ("logits",),
    TEMPORARIES: (),
}


class TraceJob(Value, frozen=True):
    """One step that trace_program must trace. The settings have the framework's own names."""

    name: str
    devices: int
    parallelism: dict[str, int]
    stages: list[int]
    micro_batches: int
    traced_micro_batches: int  # enough to fill the pipeline; the remaining micro-batches repeat these
    micro_batch_size: int
    sequence_length: int
    dtype: str
    kept_number_bytes: float | None  # of a quantized matmul's kept input, with its scales; None: not quantized
    fp8_recipe: str
    model: dict[str, Any]
    ddp: dict[str, Any]
    adapters: dict[str, Any]
    optimizer_bytes: int  # for each updated parameter: moments and master weight
    fused_attention: bool
    fused_rope: bool
    replaced: dict[str, str]  # part of the step that cannot run without the hardware -> its replacement


class HeldTensors(Value, frozen=True):
    """Tensors of one shape that one operator of one module made, and that exist at the peak of the memory."""

    kind: str
    layer: str  # the name of the module, without the number of its layer
    op: str
    part: str  # the part of the step: forward, backward or recomputed
    shape: str
    bytes: float  # the sum over these tensors
    count: int


class Matmuls(Value, frozen=True):
    layer: str
    part: str
    flops: float  # in a step


class Collectives(Value, frozen=True):
    kind: str
    axis: str
    group_size: int
    part: str
    sent_bytes: float  # in a step, in a ring
    times: int


class StageTrace(Value, frozen=True):
    """The trace of one pipeline stage, on one device."""

    stage: int
    layers: int
    parameters: int
    updated_parameters: int  # by the optimizer of this device
    peak_bytes: float
    held: list[HeldTensors]  # at the peak; largest first, without small ones
    kept_in_a_layer: dict[str, float]  # module -> bytes that it keeps for each micro-batch
    matmuls: list[Matmuls]
    collectives: list[Collectives]
    operators: int
    seconds: float

    def bytes_by_kind(self) -> dict[str, float]:
        found = dict.fromkeys(PARTS, 0.0)
        for one in self.held:
            found[one.kind] += one.bytes
        found[TEMPORARIES] += self.peak_bytes - sum(found.values())
        return found


class TraceReport(Value, frozen=True):
    versions: dict[str, str]
    devices: int
    mesh: dict[str, int]
    parameters: int  # of the traced stages
    peak_bytes: float  # the most memory that a device uses at any moment
    traced_micro_batches: int
    stages: list[StageTrace]
    replaced: dict[str, str]


class LayerFlops(Value, frozen=True):
    """The FLOPs that a module's matmuls need in a step, on all devices and in all layers."""

    layer: str
    forward: float
    backward: float
    recomputed: float
    planned: float


@dataclass(frozen=True)
class TracedProgram(StepProgram):
    compiled: TraceReport

    @property
    def fullest(self) -> StageTrace:
        return max(self.compiled.stages, key=lambda stage: stage.peak_bytes)

    @property
    def saves_memory(self) -> str:
        place = "model" if self.benchmark.engine == "bridge" else "model.config"
        return f"--set={place}.recompute_granularity=full --set={place}.recompute_method=uniform"

    @property
    def rank(self) -> tuple[bool, float]:
        return (not self.fits, self.peak_bytes)

    @property
    def memory(self) -> list[Kind]:
        """Return the memory by kind: traced on the stage that needs the most, and planned."""
        return self.kinds(self.fullest.bytes_by_kind(), PARTS, TEMPORARIES)

    @property
    def matmuls(self) -> list[LayerFlops]:
        """Return the FLOPs of matmuls on all devices, computed from the one device of each stage that was traced."""
        devices = self.compiled.devices / self.benchmark.parallelism.pipeline
        found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for one in (one for stage in self.compiled.stages for one in stage.matmuls):
            found[ADAPTERS if ".adapter." in one.layer else one.layer][one.part] += one.flops * devices
        planned = planned_flops(self.benchmark)
        return [
            LayerFlops(
                layer=layer,
                forward=found[layer]["forward"],
                backward=found[layer]["backward"],
                recomputed=found[layer]["recomputed"],
                planned=planned.get(layer, 0.0),
            )
            for layer in sorted({*found, *planned})
        ]

    @property
    def collectives(self) -> list[Collectives]:
        return sorted(self.fullest.collectives, key=lambda one: -one.sent_bytes)

    @property
    def bytes_by_axis(self) -> dict[str, float]:
        """Return axis -> bytes that a device of the fullest stage sends in a step."""
        found: dict[str, float] = defaultdict(float)
        for one in self.collectives:
            found[one.axis] += one.sent_bytes
        return dict(found)


# --- FLOPs by module ----------------------------------------------------------------------------

ADAPTERS, CORE, HEAD = "adapters", "self_attention.core_attention", "output_layer"


def planned_flops(benchmark: Benchmark) -> dict[str, float]:
    """Return module -> FLOPs of a step, without recomputation. Attention counts as if it had no mask."""
    model, length = benchmark.model, benchmark.batch.sequence_length
    of_a_weight = flops.FLOPS_PER_WEIGHT * (2 / 3 if benchmark.lora else 1)  # a frozen weight needs no gradient
    core = 3 * ledger.forward_flops(model, length)["context"] * (model.layers + model.mtp_modules)
    of_a_token = {layer: of_a_weight * weights for layer, weights in _active_weights(model).items() if weights}
    of_a_token[CORE] = core
    if benchmark.lora:
        of_a_token[ADAPTERS] = flops.FLOPS_PER_WEIGHT * flops.adapter_parameter_count(model, benchmark.lora)
    return {layer: amount * benchmark.tokens_per_step for layer, amount in of_a_token.items()}


def _active_weights(model: Model) -> dict[str, int]:
    """Return the matmul weights that a token passes, by module. A module for multi-token prediction has a layer."""
    hidden, modules, experts, latent = model.hidden_size, model.mtp_modules, model.experts, model.attention.latent
    layers, sparse = model.layers + modules, model.layers - model.dense_layers + modules
    width, active, shared = (experts.ffn_hidden_size, experts.active, experts.shared) if experts else (0, 0, 0)
    matrices = {name: prod(size(model)) for name, size in flops.LAYER_MATRICES.items()}
    attention = {"linear_qkv": matrices["query_key_value"], "linear_proj": matrices["attention_output"]}
    if latent:
        heads = model.attention_heads
        attention = {
            "linear_q_down_proj": hidden * latent.query_rank,
            "linear_q_up_proj": latent.query_rank * heads * (latent.unrotated_head_dim + latent.rotated_head_dim),
            "linear_kv_down_proj": hidden * (latent.key_value_rank + latent.rotated_head_dim),
            "linear_kv_up_proj": latent.key_value_rank * heads * (latent.unrotated_head_dim + latent.value_head_dim),
            "linear_proj": heads * latent.value_head_dim * hidden,
        }
    return {
        **{f"self_attention.{name}": layers * weights for name, weights in attention.items()},
        "mlp.linear_fc1": model.dense_layers * matrices["mlp_input"],
        "mlp.linear_fc2": model.dense_layers * matrices["mlp_output"],
        "mlp.router": sparse * flops.router_weights(model),
        "mlp.experts.linear_fc1": sparse * active * 2 * hidden * width,
        "mlp.experts.linear_fc2": sparse * active * hidden * width,
        "mlp.shared_experts.linear_fc1": sparse * shared * 2 * hidden * width,
        "mlp.shared_experts.linear_fc2": sparse * shared * hidden * width,
        "eh_proj": modules * 2 * hidden**2,
        HEAD: (1 + modules) * flops.embedding_parameters(model),
    }
