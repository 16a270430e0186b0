"""Faults that tests plant into one side of `verify.py --equivalence`, which must catch each.

Each is an error that was made, or nearly made, when weights were carried from MaxText to Megatron: a wrong order of
heads trains without complaint, and its loss looks right.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from benchmarks.equivalence.work import WorkCase
from benchmarks.inside.work_kit import Array, Arrays
from benchmarks.values import Model

WEIGHT = "weight/"
PRETRAIN, LORA, EXPERTS = "pretrain", "lora", "experts"


Given = Callable[[Arrays, Model], Arrays]
Case = Callable[[WorkCase, Model], dict[str, Any]]


class Fault(NamedTuple):
    """One difference: what the case says otherwise, or what is given to it otherwise."""

    name: str
    what: str
    case: Case = lambda _case, _model: {}
    given: Given = lambda arrays, _model: arrays


def planted(fault: Fault, case: WorkCase, given: Arrays, model: Model) -> tuple[WorkCase, Arrays]:
    """Return the backend's case and arrays with the planted difference."""
    return msgspec.structs.replace(case, **fault.case(case, model)), fault.given(dict(given), model)


# --- what is done to weights and batches ------------------------------------------------------


def _exchange(one: str, other: str) -> Given:
    def exchanged(arrays: Arrays, model: Model) -> Arrays:
        swapped = dict(arrays)
        for layer in range(model.layers):
            first, second = f"{WEIGHT}layers.{layer}.{one}", f"{WEIGHT}layers.{layer}.{other}"
            swapped |= {first: arrays[second], second: arrays[first]}
        return swapped

    return exchanged


def _queries(change: Callable[[Array, Model], Array]) -> Given:
    def changed(arrays: Mapping[str, Array], model: Model) -> Arrays:
        return {
            name: change(array, model) if name.startswith(WEIGHT) and name.endswith(".query") else array
            for name, array in arrays.items()
        }

    return changed


def _heads_group_last(query: Array, model: Model) -> Array:
    """Query heads as if those of one group were not next to each other."""
    heads, head, hidden = query.shape
    by_group = query.reshape(heads // model.query_groups, model.query_groups, head, hidden)
    return by_group.swapaxes(0, 1).reshape(query.shape)


def _layers_exchanged(arrays: Arrays, model: Model) -> Arrays:
    first, last = f"{WEIGHT}layers.0.", f"{WEIGHT}layers.{model.layers - 1}."
    names = [name.removeprefix(first) for name in arrays if name.startswith(first)]
    swapped = {first + name: arrays[last + name] for name in names}
    return {**arrays, **swapped, **{last + name: arrays[first + name] for name in names}}


def _adapter_heads(arrays: Arrays, model: Model) -> Arrays:
    changed = dict(arrays)
    for name, array in arrays.items():
        if name.startswith(WEIGHT) and name.endswith("query_b"):
            by_head = array.reshape(model.attention_heads, model.head_dim, -1)
            changed[name] = _heads_group_last(by_head, model).reshape(array.shape)
    return changed


def _without_last_adapter(arrays: Arrays, model: Model) -> Arrays:
    name = f"{WEIGHT}layers.{model.layers - 1}.down_b"
    return {**arrays, name: arrays[name] * 0}


def _routers_reversed(arrays: Arrays, _model: Model) -> Arrays:
    return {name: array[::-1] if name.endswith(".router") else array for name, array in arrays.items()}


# --- the faults -------------------------------------------------------------------------------


def _usual_scale(_case: WorkCase, model: Model) -> dict[str, Any]:
    return {"attention_scale": 1.0 / math.sqrt(model.head_dim)}


def _alpha(factor: float) -> Case:
    return lambda case, _: {"adapter_alpha": factor * (case.adapter_alpha or 0)}


def _epsilon(factor: float) -> Case:
    return lambda _, model: {"norm_epsilon": model.norm_epsilon * factor}


def _set(**changes: Any) -> Case:
    return lambda _case, _model: changes


OF_WEIGHTS = (
    Fault(
        "rope_theta",
        "RoPE's theta is the other Llama's: 500,000 for 10,000, or the reverse",
        lambda _, model: {"rope_theta": 500_000.0 if model.rope_theta < 500_000.0 else 10_000.0},
    ),
    Fault(
        "rope_theta_slight",
        "RoPE's theta is 1% larger",
        lambda _, model: {"rope_theta": float(round(model.rope_theta * 1.01))},
    ),
    Fault("rope_interleaved", "RoPE turns neighbours instead of halves", _set(rope_interleaved=True)),
    Fault("head_order", "the query heads of a group are not next to each other", given=_queries(_heads_group_last)),
    Fault("key_value_swapped", "keys for values", given=_exchange("key", "value")),
    Fault("gate_up_swapped", "the gate for the up projection", given=_exchange("gate", "up")),
    Fault(
        "norms_swapped",
        "the norm before attention for the one before the MLP",
        given=_exchange("attention_norm", "mlp_norm"),
    ),
    Fault("layers_swapped", "the first layer for the last", given=_layers_exchanged),
    Fault("norm_epsilon", "a tenth of RMSNorm's epsilon: 1e-6 for 1e-5", _epsilon(0.1)),
    Fault(
        "norm_epsilon_slight",
        "1.1 times RMSNorm's epsilon: hardly more than rounding in any array, so the built models are asked",
        _epsilon(1.1),
    ),
    Fault(
        "attention_scale_forgotten",
        "scores are scaled by 1/sqrt(d) a second time: it is in MaxText's query weights already",
        _usual_scale,
    ),
    Fault(
        "attention_scale_folded",
        "query weights times sqrt(d), scores by 1/sqrt(d): the same loss, but another training",
        _usual_scale,
        _queries(lambda query, model: query * query.dtype.type(math.sqrt(model.head_dim))),
    ),
    Fault(
        "targets_not_shifted",
        "each token is to predict itself",
        given=lambda arrays, _: {**arrays, "targets": arrays["inputs"]},
    ),
    Fault("norms_decayed", "weight decay on the scales of norms too", _set(decays_norms=True)),
    Fault("weight_decay", "no weight decay at all", _set(weight_decay=0.0)),
    Fault("warmup", "the learning rate rises from 0 over three steps", _set(warmup_steps=3)),
    Fault(
        "learning_rate",
        "a learning rate 1% higher",
        lambda case, _: {"learning_rate": case.learning_rate * 1.01},
    ),
    Fault("adam_epsilon", "an optimizer's epsilon of 1e-8", _set(adam_epsilon=1e-8)),
    Fault("adam_beta2", "an optimizer's beta2 of 0.999", _set(adam_beta2=0.999)),
    Fault("not_clipped", "gradients are not clipped", _set(clip_norm=1e9)),
)
OF_ADAPTERS = (
    Fault("adapter_scale", "twice alpha: what each adapter makes is twice as large", _alpha(2)),
    Fault("adapter_scale_slight", "alpha an eighth larger", _alpha(1.125)),
    Fault(
        "adapter_order",
        "all queries' adapters before the keys' and values', as NeMo's own CanonicalLoRA adds them",
        _set(adapters_in_order=False),
    ),
    Fault(
        "adapter_heads",
        "what a query's adapter makes goes to the heads of another group",
        given=_adapter_heads,
    ),
    Fault(
        "adapter_query_key_swapped",
        "the first halves of the queries' and the keys' adapters",
        given=_exchange("query_a", "key_a"),
    ),
    Fault(
        "adapter_key_value_swapped",
        "the keys' adapters for the values'",
        given=lambda arrays, model: _exchange("key_b", "value_b")(
            _exchange("key_a", "value_a")(arrays, model), model
        ),
    ),
    Fault(
        "adapter_gate_up_swapped",
        "the gate's second half for the up projection's",
        given=_exchange("gate_b", "up_b"),
    ),
    Fault(
        "adapter_dropped",
        "no adapter beside the last layer's down projection: it begins as nothing",
        given=_without_last_adapter,
    ),
    Fault("base_trained", "the weights beside the adapters are trained too", _set(trains_base=True)),
)
OF_EXPERTS = (
    Fault("top_k", "three experts per token instead of two", _set(active_experts=3)),
    Fault("balancing", "a loss for an even use of experts: no loss shows it", _set(balancing="aux_loss")),
    Fault("router_order", "the router's experts are in another order", given=_routers_reversed),
    Fault("experts_gate_up_swapped", "the gate for the up projection", given=_exchange("experts_gate", "experts_up")),
    Fault("query_key_norms_swapped", "queries' norm for keys'", given=_exchange("query_norm", "key_norm")),
)
OF_TASK = {
    EXPERTS: {fault.name: fault for fault in OF_EXPERTS},
    PRETRAIN: {fault.name: fault for fault in OF_WEIGHTS},
    LORA: {fault.name: fault for fault in OF_ADAPTERS},
}
