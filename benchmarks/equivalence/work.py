"""The proof that backends do the same work: what each is asked, what it answers, and in what common names. Pure.

A work program trains a few steps for each of its cases, in the precision of its benchmark. Its folder holds
request.json (a WorkRequest) and CASE/given.npz; it writes CASE/arrays.npz and, last, report.json (a WorkReport).
Arrays are float32, but for tokens:

given.npz    `inputs`, `targets` [steps, batch, sequence], targets already shifted; `weight/NAME` if a case
             starts from given weights.
arrays.npz   `weight/NAME` that it started from, `logits` [batch, sequence, V] and `gradient/NAME` (before clipping)
             of the first batch, and `trained/NAME`: the weights after all updates but the last. So the loss of the
             last step is the loss after these.

Names are neutral, so that no backend knows another's: `embedding` [V, h], `layers.I.attention_norm` [h],
`layers.I.query` [a, d, h], `layers.I.key` and `layers.I.value` [g, d, h], `layers.I.attention_output` [h, a, d],
`layers.I.mlp_norm` [h], `layers.I.gate` and `layers.I.up` [f, h], `layers.I.down` [h, f], `final_norm` [h],
`head` [V, h]. Consecutive a/g query heads share a key. RoPE turns the first half of a head against its second.

With adapters (--task=lora), each matrix of a layer, such as `layers.I.query`, comes with two more: `layers.I.query_a`
[r, in] and `layers.I.query_b` [out, r], heads flattened in their order. `gradient/` then has only these; `weight/`
and `trained/` have all.
"""

from benchmarks.inside.work_kit import ADAPTER_ENDS
from benchmarks.values import Lora, Model, Value


class WorkCase(Value, frozen=True):
    """One training of some steps. None means the benchmark's own value."""

    perturb_seed: int | None  # start from own initial weights, perturbed; None: from the given ones
    learning_rate: float
    warmup_steps: int  # the rate rises from 0 over this many steps
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    weight_decay: float
    decays_norms: bool
    clip_norm: float
    count_flops: bool
    dtype: str = "fp32"  # of the benchmark: in bf16 the first weights are numbers that bf16 has
    attention_scale: float | None = None  # what scores are multiplied by before the softmax
    rope_interleaved: bool | None = None
    rope_theta: float | None = None
    norm_epsilon: float | None = None
    adapter_alpha: float | None = None
    adapters_in_order: bool = True  # False: NeMo's own order of separate adapters
    trains_base: bool = False  # the weights with adapters are trained too


class WorkRequest(Value, frozen=True):
    cases: dict[str, WorkCase]  # name -> case; the name is that of its folder too


class WorkStep(Value, frozen=True):
    loss: float  # before the step's update
    gradient_norm: float  # before clipping


class CountedFlops(Value, frozen=True):
    """The matmuls of one batch, forward and backward, as the program or the library counts them."""

    total: int
    # Parts that the program recomputes in the backward pass -> their FLOPs, part of the total.
    recomputed: dict[str, int] = {}
    # Parts of a training step by the formula that this program may skip -> their FLOPs, not part of the total.
    left_out: dict[str, int] = {}

    @property
    def comparable(self) -> int:
        return self.total - sum(self.recomputed.values()) + sum(self.left_out.values())


class CaseReport(Value, frozen=True):
    """The results of a backend."""

    parameters: int
    settings: dict[str, float | bool | str]  # of the model as it was built, read from its modules
    loss: float  # of the first batch, like the next
    gradient_norm: float
    steps: list[WorkStep]
    flops: CountedFlops | None  # None: not asked for


class WorkReport(Value, frozen=True):
    versions: dict[str, str]
    cases: dict[str, CaseReport]
    seconds: float
    notes: list[str] = []  # what was done otherwise than in a run


# flops.ADAPTED_MATRICES -> neutral name; both sides train adapters only of these
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
    """Every tensor of a model by its neutral name."""
    parts = ("attention_norm", "query", "key", "value", "attention_output", "mlp_norm", "gate", "up", "down")
    layers = [f"layers.{layer}.{part}" for layer in range(model.layers) for part in parts]
    return ["embedding", *layers, "final_norm", *([] if model.tied_embeddings else ["head"])]


def adapter_names(model: Model, lora: Lora | None) -> list[str]:
    """Every tensor of its adapters; none where all is trained."""
    targets = lora.targets if lora else []
    return [
        f"layers.{layer}.{PARTS[target]}{end}"
        for layer in range(model.layers)
        for target in targets
        for end in ADAPTER_ENDS
    ]
