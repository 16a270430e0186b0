"""The proof that backends do the same work: what each is asked, what it answers, and in what common names. Pure.

A work program trains a few steps in fp32 for each of its cases. Its folder holds request.json (a WorkRequest) and
CASE/given.npz; it writes CASE/arrays.npz and, last, report.json (a WorkReport). Arrays are float32, but for tokens:

given.npz    `inputs`, `targets` [steps, batch, sequence], targets already shifted; `weight/NAME`, where a case is
             to start from given weights.
arrays.npz   `weight/NAME` that it started from, `logits` [batch, sequence, V] and `gradient/NAME` (before clipping)
             of the first batch, and `trained/NAME`: the weights after all updates but the last. So the loss of the
             last step is the loss after these.

Names are neutral, so that no backend knows another's: `embedding` [V, h], `layers.I.attention_norm` [h],
`layers.I.query` [a, d, h], `layers.I.key` and `layers.I.value` [g, d, h], `layers.I.attention_output` [h, a, d],
`layers.I.mlp_norm` [h], `layers.I.gate` and `layers.I.up` [f, h], `layers.I.down` [h, f], `final_norm` [h],
`head` [V, h]. Consecutive a/g query heads share a key. RoPE turns the first half of a head against its second.
"""

from benchmarks.values import Model, Value


class WorkCase(Value, frozen=True):
    """One training of some steps. What is None is left as the benchmark builds it."""

    perturb_seed: int | None  # start from own initial weights, perturbed; None: from the given ones
    learning_rate: float
    warmup_steps: int  # the rate rises from 0 over so many steps
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    weight_decay: float
    decays_norms: bool
    clip_norm: float
    count_flops: bool
    attention_scale: float | None = None  # what scores are multiplied by before the softmax
    rope_interleaved: bool | None = None
    rope_theta: float | None = None
    norm_epsilon: float | None = None


class WorkRequest(Value, frozen=True):
    cases: dict[str, WorkCase]  # name -> case; the name is that of its folder too


class WorkStep(Value, frozen=True):
    loss: float  # before the step's update
    gradient_norm: float  # before clipping


class CountedFlops(Value, frozen=True):
    """The matmuls of one batch, forward and backward, as the program or the library counts them."""

    total: int
    counted_by: str
    # What the program names as computed a second time in the backward pass -> its FLOPs, part of the total.
    recomputed: dict[str, int] = {}

    @property
    def without_recompute(self) -> int:
        return self.total - sum(self.recomputed.values())


class CaseReport(Value, frozen=True):
    """What a backend computed."""

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


def tensor_names(model: Model) -> list[str]:
    """Every tensor of a model by its neutral name."""
    parts = ("attention_norm", "query", "key", "value", "attention_output", "mlp_norm", "gate", "up", "down")
    layers = [f"layers.{layer}.{part}" for layer in range(model.layers) for part in parts]
    return ["embedding", *layers, "final_norm", *([] if model.tied_embeddings else ["head"])]
