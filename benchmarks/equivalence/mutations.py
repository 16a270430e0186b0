"""Differences to plant on purpose into one backend's side of the proof, which must catch each. Pure.

Each is an error that was made, or nearly made, when weights were carried from MaxText to Megatron: a wrong order of
heads trains without complaint, and its loss looks right.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from benchmarks.equivalence.work import WorkCase
from benchmarks.errors import RequestError, nearest
from benchmarks.values import Model

if TYPE_CHECKING:
    from benchmarks.inside.work_kit import Array, Arrays

ALL = "all"
LIST = "list"
WEIGHT = "weight/"
PRETRAIN, LORA = "pretrain", "lora"


Given = Callable[["Arrays", Model], "Arrays"]
Case = Callable[[WorkCase, Model], dict[str, Any]]


class Plant(NamedTuple):
    """One difference: what the case says otherwise, or what is given to it otherwise."""

    name: str
    what: str
    case: Case = lambda _case, _model: {}
    given: Given = lambda arrays, _model: arrays
    in_bf16: bool = True  # False: it changes less than bf16's rounding does


def planted(plant: Plant, case: WorkCase, given: "Arrays", model: Model) -> tuple[WorkCase, "Arrays"]:
    """What the backend is told, and given, with the difference in it."""
    return msgspec.structs.replace(case, **plant.case(case, model)), plant.given(dict(given), model)


def plants_of(task: str, dtype: str = "fp32") -> dict[str, Plant]:
    """Those that a comparison of this task and precision must catch."""
    return {plant.name: plant for plant in OF_TASK[task] if plant.in_bf16 or dtype != "bf16"}


def chosen(names: Iterable[str], task: str = PRETRAIN, dtype: str = "fp32") -> list[Plant]:
    """The plants of these names, each once; `all` is every one of the task and precision."""
    known = plants_of(task, dtype)
    wanted = list(known) if ALL in names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            raise RequestError(
                f"unknown plant '{name}' of task {task} in {dtype}: {nearest(name, known)}",
                where=f"--plant={name}",
                next_command=f"python launch/verify.py --equivalence --task={task} --dtype={dtype} --plant={LIST}",
            )
    return [known[name] for name in wanted]


# --- what is done to weights and batches ------------------------------------------------------


def _exchange(one: str, other: str) -> Given:
    def exchanged(arrays: "Arrays", model: Model) -> "Arrays":
        swapped = dict(arrays)
        for layer in range(model.layers):
            first, second = f"{WEIGHT}layers.{layer}.{one}", f"{WEIGHT}layers.{layer}.{other}"
            swapped |= {first: arrays[second], second: arrays[first]}
        return swapped

    return exchanged


def _queries(change: Callable[["Array", Model], "Array"]) -> Given:
    def changed(arrays: Mapping[str, "Array"], model: Model) -> "Arrays":
        return {
            name: change(array, model) if name.startswith(WEIGHT) and name.endswith(".query") else array
            for name, array in arrays.items()
        }

    return changed


def _heads_group_last(query: "Array", model: Model) -> "Array":
    """Query heads as if those of one group were not next to each other."""
    heads, head, hidden = query.shape
    by_group = query.reshape(heads // model.query_groups, model.query_groups, head, hidden)
    return by_group.swapaxes(0, 1).reshape(query.shape)


def _layers_exchanged(arrays: "Arrays", model: Model) -> "Arrays":
    first, last = f"{WEIGHT}layers.0.", f"{WEIGHT}layers.{model.layers - 1}."
    names = [name.removeprefix(first) for name in arrays if name.startswith(first)]
    swapped = {first + name: arrays[last + name] for name in names}
    return {**arrays, **swapped, **{last + name: arrays[first + name] for name in names}}


def _adapter_heads(arrays: "Arrays", model: Model) -> "Arrays":
    changed = dict(arrays)
    for name, array in arrays.items():
        if name.startswith(WEIGHT) and name.endswith("query_b"):
            by_head = array.reshape(model.attention_heads, model.head_dim, -1)
            changed[name] = _heads_group_last(by_head, model).reshape(array.shape)
    return changed


def _without_last_adapter(arrays: "Arrays", model: Model) -> "Arrays":
    name = f"{WEIGHT}layers.{model.layers - 1}.down_b"
    return {**arrays, name: arrays[name] * 0}


# --- the plants -------------------------------------------------------------------------------


def _usual_scale(_case: WorkCase, model: Model) -> dict[str, Any]:
    return {"attention_scale": 1.0 / math.sqrt(model.head_dim)}


def _alpha(factor: float) -> Case:
    return lambda case, _: {"adapter_alpha": factor * (case.adapter_alpha or 0)}


def _epsilon(factor: float) -> Case:
    return lambda _, model: {"norm_epsilon": model.norm_epsilon * factor}


def _set(**changes: Any) -> Case:
    return lambda _case, _model: changes


NORMS_DECAYED = Plant(
    "norms_decayed", "weight decay on the scales of norms too", _set(decays_norms=True), in_bf16=False
)
OF_WEIGHTS = (
    Plant(
        "rope_theta",
        "RoPE's theta is the other Llama's: 500,000 for 10,000, or the reverse",
        lambda _, model: {"rope_theta": 500_000.0 if model.rope_theta < 500_000.0 else 10_000.0},
    ),
    Plant(
        "rope_theta_slight",
        "RoPE's theta is 1% larger",
        lambda _, model: {"rope_theta": float(round(model.rope_theta * 1.01))},
    ),
    Plant("rope_interleaved", "RoPE turns neighbours instead of halves", _set(rope_interleaved=True)),
    Plant("head_order", "the query heads of a group are not next to each other", given=_queries(_heads_group_last)),
    Plant("key_value_swapped", "keys for values", given=_exchange("key", "value")),
    Plant("gate_up_swapped", "the gate for the up projection", given=_exchange("gate", "up")),
    Plant(
        "norms_swapped",
        "the norm before attention for the one before the MLP",
        given=_exchange("attention_norm", "mlp_norm"),
    ),
    Plant("layers_swapped", "the first layer for the last", given=_layers_exchanged),
    Plant("norm_epsilon", "a tenth of RMSNorm's epsilon: 1e-6 for 1e-5", _epsilon(0.1)),
    Plant(
        "norm_epsilon_slight",
        "1.1 times RMSNorm's epsilon: hardly more than rounding in any array, so the built models are asked",
        _epsilon(1.1),
    ),
    Plant(
        "attention_scale_forgotten",
        "scores are scaled by 1/sqrt(d) a second time: it is in MaxText's query weights already",
        _usual_scale,
    ),
    Plant(
        "attention_scale_folded",
        "query weights times sqrt(d), scores by 1/sqrt(d): the same loss, but another training",
        _usual_scale,
        _queries(lambda query, model: query * query.dtype.type(math.sqrt(model.head_dim))),
    ),
    Plant(
        "targets_not_shifted",
        "each token is to predict itself",
        given=lambda arrays, _: {**arrays, "targets": arrays["inputs"]},
    ),
    NORMS_DECAYED,
    Plant("weight_decay", "no weight decay at all", _set(weight_decay=0.0), in_bf16=False),
    Plant("warmup", "the learning rate rises from 0 over three steps", _set(warmup_steps=3)),
    Plant(
        "learning_rate",
        "a learning rate 1% higher",
        lambda case, _: {"learning_rate": case.learning_rate * 1.01},
        in_bf16=False,
    ),
    Plant("adam_epsilon", "an optimizer's epsilon of 1e-8", _set(adam_epsilon=1e-8)),
    Plant("adam_beta2", "an optimizer's beta2 of 0.999", _set(adam_beta2=0.999), in_bf16=False),
    Plant("not_clipped", "gradients are not clipped", _set(clip_norm=1e9)),
)
OF_ADAPTERS = (
    Plant("adapter_scale", "twice alpha: what each adapter makes is twice as large", _alpha(2)),
    Plant("adapter_scale_slight", "alpha an eighth larger", _alpha(1.125)),
    Plant(
        "adapter_order",
        "all queries' adapters before the keys' and values', as NeMo's own CanonicalLoRA adds them",
        _set(adapters_in_order=False),
    ),
    Plant(
        "adapter_heads",
        "what a query's adapter makes goes to the heads of another group",
        given=_adapter_heads,
    ),
    Plant(
        "adapter_query_key_swapped",
        "the first halves of the queries' and the keys' adapters",
        given=_exchange("query_a", "key_a"),
    ),
    Plant(
        "adapter_key_value_swapped",
        "the keys' adapters for the values'",
        given=lambda arrays, model: _exchange("key_b", "value_b")(
            _exchange("key_a", "value_a")(arrays, model), model
        ),
    ),
    Plant(
        "adapter_gate_up_swapped",
        "the gate's second half for the up projection's",
        given=_exchange("gate_b", "up_b"),
    ),
    Plant(
        "adapter_dropped",
        "no adapter beside the last layer's down projection: it begins as nothing",
        given=_without_last_adapter,
    ),
    Plant("base_trained", "the weights beside the adapters are trained too", _set(trains_base=True)),
)
OF_TASK = {
    PRETRAIN: OF_WEIGHTS,
    LORA: (*(plant for plant in OF_WEIGHTS if plant is not NORMS_DECAYED), *OF_ADAPTERS),
}
