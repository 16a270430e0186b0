"""Differences to plant on purpose into one backend's side of the proof, which must catch each. Pure.

Each is an error that was made, or nearly made, when weights were carried from MaxText to Megatron: a wrong order of
heads trains without complaint, and its loss looks right.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.equivalence.work import WorkCase
from benchmarks.errors import RequestError, nearest
from benchmarks.values import Model, Value

if TYPE_CHECKING:
    from benchmarks.inside.work_kit import Array, Arrays

ALL = "all"
LIST = "list"
WEIGHT = "weight/"
PRETRAIN, LORA = "pretrain", "lora"


Given = Callable[["Arrays", Model], "Arrays"]


def _as_it_is(arrays: "Arrays", _model: Model) -> "Arrays":
    return arrays


class Plant(Value, frozen=True):
    """One difference: what the case says otherwise, or what is given to it otherwise."""

    name: str
    what: str
    case: Callable[[WorkCase, Model], dict[str, Any]] = lambda _case, _model: {}
    given: Given = _as_it_is
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
            unknown = f"unknown plant '{name}': {nearest(name, known)}"
            raise RequestError(
                f"plant '{name}' is none of task {task} in {dtype}" if name in PLANTS else unknown,
                where=f"--plant={name}",
                why="it changes less than bf16's rounding does" if name in plants_of(task) else "",
                next_command=f"python launch/verify.py --equivalence{_said(task, dtype)} --plant={LIST}",
            )
    return [known[name] for name in wanted]


def _said(task: str, dtype: str) -> str:
    return ("" if task == PRETRAIN else f" --task={task}") + ("" if dtype == "fp32" else f" --dtype={dtype}")


# --- what is done to weights and batches ------------------------------------------------------


def _exchanged(arrays: "Arrays", model: Model, one: str, other: str) -> "Arrays":
    swapped: Arrays = {}
    for layer in range(model.layers):
        first, second = f"{WEIGHT}layers.{layer}.{one}", f"{WEIGHT}layers.{layer}.{other}"
        swapped |= {first: arrays[second], second: arrays[first]}
    return {**arrays, **swapped}


def _exchange(one: str, other: str) -> Given:
    return lambda arrays, model: _exchanged(arrays, model, one, other)


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


def _adapter_heads(name: str, array: "Array", model: Model) -> "Array":
    if not name.startswith(WEIGHT) or not name.endswith("query_b"):
        return array
    by_head = array.reshape(model.attention_heads, model.head_dim, -1)
    return _heads_group_last(by_head, model).reshape(array.shape)


def _nothing(arrays: "Arrays", name: str) -> "Arrays":
    return {WEIGHT + name: arrays[WEIGHT + name] * 0}


# --- the plants -------------------------------------------------------------------------------

Told = float | bool | Callable[[WorkCase, Model], float]


def _told(name: str, what: str, given: Given = _as_it_is, in_bf16: bool = True, **changes: Told) -> Plant:
    """The case says otherwise; a change may be a function of the case and the model."""

    def case(told: WorkCase, model: Model) -> dict[str, Any]:
        return {key: change(told, model) if callable(change) else change for key, change in changes.items()}

    return Plant(name=name, what=what, case=case, given=given, in_bf16=in_bf16)


def _given(name: str, what: str, given: Given) -> Plant:
    return Plant(name=name, what=what, given=given)


def _usual_scale(_case: WorkCase, model: Model) -> float:
    return 1.0 / math.sqrt(model.head_dim)


NORMS_DECAYED = _told("norms_decayed", "weight decay on the scales of norms too", in_bf16=False, decays_norms=True)
OF_WEIGHTS = (
    _told(
        "rope_theta",
        "RoPE's theta is the other Llama's: 500,000 for 10,000, or the reverse",
        rope_theta=lambda _, model: 500_000.0 if model.rope_theta < 500_000.0 else 10_000.0,
    ),
    _told(
        "rope_theta_slight",
        "RoPE's theta is 1% larger",
        rope_theta=lambda _, model: float(round(model.rope_theta * 1.01)),
    ),
    _told("rope_interleaved", "RoPE turns neighbours instead of halves", rope_interleaved=True),
    _given("head_order", "the query heads of a group are not next to each other", _queries(_heads_group_last)),
    _given("key_value_swapped", "keys for values", _exchange("key", "value")),
    _given("gate_up_swapped", "the gate for the up projection", _exchange("gate", "up")),
    _given(
        "norms_swapped",
        "the norm before attention for the one before the MLP",
        _exchange("attention_norm", "mlp_norm"),
    ),
    _given("layers_swapped", "the first layer for the last", _layers_exchanged),
    _told(
        "norm_epsilon",
        "a tenth of RMSNorm's epsilon: 1e-6 for 1e-5",
        norm_epsilon=lambda _, model: model.norm_epsilon / 10,
    ),
    _told(
        "norm_epsilon_slight",
        "1.1 times RMSNorm's epsilon: hardly more than rounding in any array, so the built models are asked",
        norm_epsilon=lambda _, model: model.norm_epsilon * 1.1,
    ),
    _told(
        "attention_scale_forgotten",
        "scores are scaled by 1/sqrt(d) a second time: it is in MaxText's query weights already",
        attention_scale=_usual_scale,
    ),
    _told(
        "attention_scale_folded",
        "query weights times sqrt(d), scores by 1/sqrt(d): the same loss, but another training",
        given=_queries(lambda query, model: query * query.dtype.type(math.sqrt(model.head_dim))),
        attention_scale=_usual_scale,
    ),
    _given(
        "targets_not_shifted",
        "each token is to predict itself",
        lambda arrays, _: {**arrays, "targets": arrays["inputs"]},
    ),
    NORMS_DECAYED,
    _told("weight_decay", "no weight decay at all", in_bf16=False, weight_decay=0.0),
    _told("warmup", "the learning rate rises from 0 over three steps", warmup_steps=3),
    _told(
        "learning_rate",
        "a learning rate 1% higher",
        in_bf16=False,
        learning_rate=lambda case, _: case.learning_rate * 1.01,
    ),
    _told("adam_epsilon", "an optimizer's epsilon of 1e-8", adam_epsilon=1e-8),
    _told("adam_beta2", "an optimizer's beta2 of 0.999", in_bf16=False, adam_beta2=0.999),
    _told("not_clipped", "gradients are not clipped", clip_norm=1e9),
)
OF_ADAPTERS = (
    _told(
        "adapter_scale",
        "twice alpha: what each adapter makes is twice as large",
        adapter_alpha=lambda case, _: 2 * (case.adapter_alpha or 0),
    ),
    _told(
        "adapter_scale_slight",
        "alpha an eighth larger",
        adapter_alpha=lambda case, _: 1.125 * (case.adapter_alpha or 0),
    ),
    _told(
        "adapter_order",
        "all queries' adapters before the keys' and values', as NeMo's own CanonicalLoRA adds them",
        adapters_in_order=False,
    ),
    _given(
        "adapter_heads",
        "what a query's adapter makes goes to the heads of another group",
        lambda arrays, model: {name: _adapter_heads(name, array, model) for name, array in arrays.items()},
    ),
    _given(
        "adapter_query_key_swapped",
        "the first halves of the queries' and the keys' adapters",
        _exchange("query_a", "key_a"),
    ),
    _given(
        "adapter_key_value_swapped",
        "the keys' adapters for the values'",
        lambda arrays, model: _exchange("key_b", "value_b")(_exchange("key_a", "value_a")(arrays, model), model),
    ),
    _given(
        "adapter_gate_up_swapped",
        "the gate's second half for the up projection's",
        _exchange("gate_b", "up_b"),
    ),
    _given(
        "adapter_dropped",
        "no adapter beside the last layer's down projection: it begins as nothing",
        lambda arrays, model: {**arrays, **_nothing(arrays, f"layers.{model.layers - 1}.down_b")},
    ),
    _told("base_trained", "the weights beside the adapters are trained too", trains_base=True),
)
OF_TASK = {
    PRETRAIN: OF_WEIGHTS,
    LORA: (*(plant for plant in OF_WEIGHTS if plant is not NORMS_DECAYED), *OF_ADAPTERS),
}
PLANTS: Mapping[str, Plant] = {plant.name: plant for plants in OF_TASK.values() for plant in plants}
