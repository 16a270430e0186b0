"""The proof that backends do the same work: what each is asked, what it answers, and in what common names. Pure.

Arrays travel in arrays.npz under neutral names, so that no backend knows another's:
`weight/NAME`, `gradient/NAME`, `logits` [batch, sequence, vocabulary], where NAME is `embedding` [V, h],
`layers.I.attention_norm` [h], `layers.I.query` [a, d, h], `layers.I.key` and `layers.I.value` [g, d, h],
`layers.I.attention_output` [h, a, d], `layers.I.mlp_norm` [h], `layers.I.gate` and `layers.I.up` [f, h],
`layers.I.down` [h, f], `final_norm` [h], `head` [V, h].
"""

from benchmarks.values import Value


class WorkRequest(Value, frozen=True):
    """What to compute. Tokens are in tokens.npy of the same folder: [steps, batch, sequence + 1]."""

    perturb_seed: (
        int | None
    )  # of own initial weights, so that no error hides in what is 1 everywhere; None: given ones
    learning_rate: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    weight_decay: float
    clip_norm: float
    plant: str = ""  # a difference to plant on purpose: the proof must catch it


class WorkStep(Value, frozen=True):
    loss: float
    gradient_norm: float


class WorkReport(Value, frozen=True):
    """What a backend computed, in fp32."""

    versions: dict[str, str]
    parameters: int
    settings: dict[
        str, float | bool | str
    ]  # of the model as it was built: norm_epsilon, rope_theta, rope_interleaved
    loss: float
    gradient_norm: float
    steps: list[WorkStep]  # each with the loss before its update
    counted_flops: int  # of one batch, forward and backward, as the program or the library counts them
    counted_without_recompute: int
    counted_by: str
    seconds: float
    notes: list[str] = []
