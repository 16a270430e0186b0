"""The request to work programs, their report, and the common names of tensors, for the proof of equivalence. No I/O.

A work program trains a few steps for each of its cases, in the precision of its benchmark. It reads request.json (a
WorkRequest) and CASE/given.npz from its folder, and writes CASE/arrays.npz and, last, report.json (a WorkReport). All
arrays except tokens are float32:

given.npz    `inputs`, `targets` [steps, batch, sequence], targets already shifted; `weight/NAME` if a case
             starts from given weights.
arrays.npz   `weight/NAME`, the initial weights; `logits` [batch, sequence, V] and `gradient/NAME` (before clipping)
             of the first batch; and `trained/NAME`, the weights before the last update, with which the loss of the
             last step was computed.

All backends use the same neutral names of tensors: `embedding` [V, h], `layers.I.attention_norm` [h],
`layers.I.query` [a, d, h], `layers.I.key` and `layers.I.value` [g, d, h], `layers.I.attention_output` [h, a, d],
`layers.I.mlp_norm` [h], `layers.I.gate` and `layers.I.up` [f, h], `layers.I.down` [h, f], `final_norm` [h],
`head` [V, h]. Consecutive a/g query heads share a key. RoPE rotates the first half of a head with its second half.
A model with query and key norms has `layers.I.query_norm` and `layers.I.key_norm` [d]. A layer with experts has
`layers.I.router` [E, h], `layers.I.experts_gate` and `layers.I.experts_up` [E, e, h], and `layers.I.experts_down`
[E, h, e] instead of `gate`, `up` and `down`.

With adapters (--task=lora), each adapted matrix of a layer, such as `layers.I.query`, has two more matrices:
`layers.I.query_a` [r, in] and `layers.I.query_b` [out, r], with heads flattened in order. `gradient/` then has only
these matrices; `weight/` and `trained/` have all tensors.
"""

from benchmarks.inside.work_kit import ADAPTER_ENDS
from benchmarks.values import Lora, Model, Value


class WorkCase(Value, frozen=True):
    """A training of a few steps. If a field after `dtype` is None, the benchmark's own value is used."""

    perturb_seed: int | None  # perturbs the program's own initial weights; None: start from given weights
    learning_rate: float
    warmup_steps: int  # the number of steps in which the learning rate rises from 0
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    weight_decay: float
    decays_norms: bool
    clip_norm: float
    count_flops: bool
    dtype: str = "fp32"  # the benchmark's precision; with bf16, the initial weights are rounded to bf16
    attention_scale: float | None = None  # the factor of the scores before the softmax
    rope_interleaved: bool | None = None
    rope_theta: float | None = None
    norm_epsilon: float | None = None
    active_experts: int | None = None
    balancing: str | None = None  # the loss that Megatron adds for an even use of experts: none, aux_loss
    adapter_alpha: float | None = None
    adapters_in_order: bool = True  # False: separate adapters in NeMo's own order
    trains_base: bool = False  # whether weights that have adapters are trained too


class WorkRequest(Value, frozen=True):
    cases: dict[str, WorkCase]  # name of a case, which is also its folder -> case


class WorkStep(Value, frozen=True):
    loss: float  # before the update of this step
    gradient_norm: float  # before clipping


class CountedFlops(Value, frozen=True):
    """The FLOPs of the matmuls for one batch, forward and backward, as the program or a library counted them."""

    total: int
    # Part of the step that the program recomputes in the backward pass -> its FLOPs, which `total` includes.
    recomputed: dict[str, int] = {}
    # Part of the step that the formula counts but the program skips -> its FLOPs, which `total` does not include.
    left_out: dict[str, int] = {}

    @property
    def comparable(self) -> int:
        return self.total - sum(self.recomputed.values()) + sum(self.left_out.values())


class CaseReport(Value, frozen=True):
    """The results of one backend for one case."""

    parameters: int
    settings: dict[str, float | bool | str]  # the settings of the model that was built, read from its modules
    loss: float  # for the first batch
    gradient_norm: float  # for the first batch
    steps: list[WorkStep]
    flops: CountedFlops | None  # None: not requested


class WorkReport(Value, frozen=True):
    versions: dict[str, str]
    cases: dict[str, CaseReport]
    seconds: float
    notes: list[str] = []  # differences between this work and a run


# A name in flops.ADAPTED_MATRICES -> the neutral name. Both backends train adapters only for these matrices.
PARTS = {
    "query": "query",
    "key": "key",
    "value": "value",
    "attention_output": "attention_output",
    "gate": "gate",
    "up": "up",
    "mlp_output": "down",
}


def tensor_names(model: Model) -> list[str]:
    """Return the neutral names of all tensors in a model."""
    norms = ("query_norm", "key_norm") if model.attention.query_key_norms else ()
    dense, sparse = ("gate", "up", "down"), ("router", "experts_gate", "experts_up", "experts_down")
    parts = ("attention_norm", "query", "key", "value", "attention_output", "mlp_norm", *norms)
    parts += sparse if model.experts else dense
    layers = [f"layers.{layer}.{part}" for layer in range(model.layers) for part in parts]
    return ["embedding", *layers, "final_norm", *([] if model.tied_embeddings else ["head"])]


def adapter_names(model: Model, lora: Lora | None) -> list[str]:
    """Return the neutral names of all adapter tensors; an empty list without LoRA."""
    targets = lora.targets if lora else []
    return [
        f"layers.{layer}.{PARTS[target]}{end}"
        for layer in range(model.layers)
        for target in targets
        for end in ADAPTER_ENDS
    ]
