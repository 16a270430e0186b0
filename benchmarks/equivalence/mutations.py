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


class Plant(Value, frozen=True):
    """One difference: what the case says otherwise, or what is given to it otherwise."""

    name: str
    what: str
    case: Callable[[WorkCase, Model], dict[str, Any]] = lambda _case, _model: {}
    given: Callable[["Arrays", Model], "Arrays"] = lambda arrays, _model: arrays
    tasks: tuple[str, ...] = (PRETRAIN, LORA)
    in_bf16: bool = True  # False: it changes less than bf16's rounding does


def planted(plant: Plant, case: WorkCase, given: "Arrays", model: Model) -> tuple[WorkCase, "Arrays"]:
    """What the backend is told, and given, with the difference in it."""
    return msgspec.structs.replace(case, **plant.case(case, model)), plant.given(dict(given), model)


def plants_of(task: str, dtype: str = "fp32") -> dict[str, Plant]:
    """Those that a comparison of this task and precision must catch."""
    seen = {name: plant for name, plant in PLANTS.items() if plant.in_bf16 or dtype != "bf16"}
    return {name: plant for name, plant in seen.items() if task in plant.tasks}


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


def _exchange(one: str, other: str) -> Callable[["Arrays", Model], "Arrays"]:
    return lambda arrays, model: _exchanged(arrays, model, one, other)


def _queries(change: Callable[["Array", Model], "Array"]) -> Callable[["Arrays", Model], "Arrays"]:
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


def _other_theta(_case: WorkCase, model: Model) -> dict[str, Any]:
    return {"rope_theta": 500_000.0 if model.rope_theta < 500_000.0 else 10_000.0}


def _usual_scale(_case: WorkCase, model: Model) -> dict[str, Any]:
    return {"attention_scale": 1.0 / math.sqrt(model.head_dim)}


PLANTS: Mapping[str, Plant] = {
    plant.name: plant
    for plant in (
        Plant(
            name="rope_theta",
            what="RoPE's theta is the other Llama's: 500,000 for 10,000, or the reverse",
            case=_other_theta,
        ),
        Plant(
            name="rope_theta_slight",
            what="RoPE's theta is 1% larger",
            case=lambda _, model: {"rope_theta": float(round(model.rope_theta * 1.01))},
        ),
        Plant(
            name="rope_interleaved",
            what="RoPE turns neighbours instead of halves",
            case=lambda _case, _model: {"rope_interleaved": True},
        ),
        Plant(
            name="head_order",
            what="the query heads of a group are not next to each other",
            given=_queries(_heads_group_last),
        ),
        Plant(name="key_value_swapped", what="keys for values", given=_exchange("key", "value")),
        Plant(name="gate_up_swapped", what="the gate for the up projection", given=_exchange("gate", "up")),
        Plant(
            name="norms_swapped",
            what="the norm before attention for the one before the MLP",
            given=_exchange("attention_norm", "mlp_norm"),
        ),
        Plant(name="layers_swapped", what="the first layer for the last", given=_layers_exchanged),
        Plant(
            name="norm_epsilon",
            what="a tenth of RMSNorm's epsilon: 1e-6 for 1e-5",
            case=lambda _, model: {"norm_epsilon": model.norm_epsilon / 10},
        ),
        Plant(
            name="norm_epsilon_slight",
            what="1.1 times RMSNorm's epsilon: hardly more than rounding in any array, so the built models are asked",
            case=lambda _, model: {"norm_epsilon": model.norm_epsilon * 1.1},
        ),
        Plant(
            name="attention_scale_forgotten",
            what="scores are scaled by 1/sqrt(d) a second time: it is in MaxText's query weights already",
            case=_usual_scale,
        ),
        Plant(
            name="attention_scale_folded",
            what="query weights times sqrt(d), scores by 1/sqrt(d): the same loss, but another training",
            case=_usual_scale,
            given=_queries(lambda query, model: query * query.dtype.type(math.sqrt(model.head_dim))),
        ),
        Plant(
            name="targets_not_shifted",
            what="each token is to predict itself",
            given=lambda arrays, _: {**arrays, "targets": arrays["inputs"]},
        ),
        Plant(
            name="norms_decayed",
            what="weight decay on the scales of norms too",
            case=lambda _case, _model: {"decays_norms": True},
            in_bf16=False,
            tasks=(PRETRAIN,),
        ),
        Plant(
            name="weight_decay",
            what="no weight decay at all",
            case=lambda _case, _model: {"weight_decay": 0.0},
            in_bf16=False,
        ),
        Plant(
            name="warmup",
            what="the learning rate rises from 0 over three steps",
            case=lambda _case, _model: {"warmup_steps": 3},
        ),
        Plant(
            name="learning_rate",
            what="a learning rate 1% higher",
            case=lambda case, _: {"learning_rate": case.learning_rate * 1.01},
            in_bf16=False,
        ),
        Plant(
            name="adam_epsilon",
            what="an optimizer's epsilon of 1e-8",
            case=lambda _case, _model: {"adam_epsilon": 1e-8},
        ),
        Plant(
            name="adam_beta2",
            what="an optimizer's beta2 of 0.999",
            case=lambda _c, _m: {"adam_beta2": 0.999},
            in_bf16=False,
        ),
        Plant(
            name="not_clipped",
            what="gradients are not clipped",
            case=lambda _case, _model: {"clip_norm": 1e9},
        ),
        Plant(
            name="adapter_scale",
            what="twice alpha: what each adapter makes is twice as large",
            case=lambda case, _: {"adapter_alpha": 2 * (case.adapter_alpha or 0)},
            tasks=(LORA,),
        ),
        Plant(
            name="adapter_scale_slight",
            what="alpha an eighth larger",
            case=lambda case, _: {"adapter_alpha": 1.125 * (case.adapter_alpha or 0)},
            tasks=(LORA,),
        ),
        Plant(
            name="adapter_order",
            what="all queries' adapters before the keys' and values', as NeMo's own CanonicalLoRA adds them",
            case=lambda _case, _model: {"adapters_in_order": False},
            tasks=(LORA,),
        ),
        Plant(
            name="adapter_heads",
            what="what a query's adapter makes goes to the heads of another group",
            given=lambda arrays, model: {name: _adapter_heads(name, array, model) for name, array in arrays.items()},
            tasks=(LORA,),
        ),
        Plant(
            name="adapter_query_key_swapped",
            what="the first halves of the queries' and the keys' adapters",
            given=_exchange("query_a", "key_a"),
            tasks=(LORA,),
        ),
        Plant(
            name="adapter_key_value_swapped",
            what="the keys' adapters for the values'",
            given=lambda arrays, model: _exchange("key_b", "value_b")(
                _exchange("key_a", "value_a")(arrays, model), model
            ),
            tasks=(LORA,),
        ),
        Plant(
            name="adapter_gate_up_swapped",
            what="the gate's second half for the up projection's",
            given=_exchange("gate_b", "up_b"),
            tasks=(LORA,),
        ),
        Plant(
            name="adapter_dropped",
            what="no adapter beside the last layer's down projection: it begins as nothing",
            given=lambda arrays, model: {**arrays, **_nothing(arrays, f"layers.{model.layers - 1}.down_b")},
            tasks=(LORA,),
        ),
        Plant(
            name="base_trained",
            what="the weights beside the adapters are trained too",
            case=lambda _case, _model: {"trains_base": True},
            tasks=(LORA,),
        ),
    )
}
