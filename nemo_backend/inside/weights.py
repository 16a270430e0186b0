"""Convert a model's weights between Megatron's names and neutral names, and load weights into a model."""

import numpy as np

# Neutral name -> Megatron's name, for weights with the same layout: first of the whole model, then of each layer.
OF_THE_MODEL = {
    "embedding": "embedding.word_embeddings.weight",
    "final_norm": "decoder.final_layernorm.weight",
    "head": "output_layer.weight",
}
OF_A_LAYER = {
    "attention_norm": "input_layernorm.weight",
    "mlp_norm": "pre_mlp_layernorm.weight",
    "down": "mlp.linear_fc2.weight",
    "query_norm": "self_attention.q_layernorm.weight",
    "key_norm": "self_attention.k_layernorm.weight",
    "router": "mlp.router.weight",
}
# Neutral name -> the module of NeMo with the two matrices of its adapter.
ADAPTERS = {
    "query": "self_attention.linear_qkv.adapter.adapter_q",
    "key": "self_attention.linear_qkv.adapter.adapter_k",
    "value": "self_attention.linear_qkv.adapter.adapter_v",
    "attention_output": "self_attention.linear_proj.adapter",
    "gate": "mlp.linear_fc1.adapter.adapter_gate",
    "up": "mlp.linear_fc1.adapter.adapter_up",
    "down": "mlp.linear_fc2.adapter",
}
IN_ADAPTER = {"_a": "linear_in.weight", "_b": "linear_out.weight"}
IN_AN_ADAPTER = ".adapter."
WRAPPED = ".to_wrap."  # in the name of a matrix with an adapter
QKV = "self_attention.linear_qkv.weight"
EXPERTS = "mlp.experts.local_experts"
PROJECTION = "self_attention.linear_proj.weight"
FC1 = "mlp.linear_fc1.weight"


class Sizes:
    """The sizes of attention, from the configuration of the built model."""

    def __init__(self, config):
        self.layers = config.num_layers
        self.hidden = config.hidden_size
        self.heads = config.num_attention_heads
        self.groups = config.num_query_groups
        self.head = config.kv_channels
        self.per_group = self.heads // self.groups
        self.experts = config.num_moe_experts or 0


def names(sizes):
    """Return {neutral name: Megatron's name} for all weights with the same layout, including weights of adapters."""
    in_layer = OF_A_LAYER | {
        ours + end: f"{place}.{matrix}" for ours, place in ADAPTERS.items() for end, matrix in IN_ADAPTER.items()
    }
    return OF_THE_MODEL | {
        f"layers.{layer}.{ours}": f"decoder.layers.{layer}.{theirs}"
        for layer in range(sizes.layers)
        for ours, theirs in in_layer.items()
    }


def neutral(tensors, sizes):
    """Return neutral name -> array from Megatron's arrays, with the fused matrices split."""
    tensors = {name.replace(WRAPPED, "."): tensor for name, tensor in tensors.items()}
    found = {ours: tensors[theirs] for ours, theirs in names(sizes).items() if theirs in tensors}
    for layer in range(sizes.layers):
        place, name = f"decoder.layers.{layer}.", f"layers.{layer}."
        if place + QKV not in tensors:
            continue  # the tensors are gradients, and this weight is frozen
        # In each group, the rows of the query heads are first, then those of its key, then those of its value.
        grouped = tensors[place + QKV].reshape(sizes.groups, sizes.per_group + 2, sizes.head, sizes.hidden)
        found[name + "query"] = grouped[:, :-2].reshape(sizes.heads, sizes.head, sizes.hidden)
        found[name + "key"], found[name + "value"] = grouped[:, -2], grouped[:, -1]
        found[name + "attention_output"] = tensors[place + PROJECTION].reshape(sizes.hidden, sizes.heads, sizes.head)
        if not sizes.experts:
            found[name + "gate"], found[name + "up"] = np.split(tensors[place + FC1], 2)
            continue
        owned = [f"{place}{EXPERTS}.{expert}.linear_fc" for expert in range(sizes.experts)]
        first, second = (np.stack([tensors[f"{own}{part}.weight"] for own in owned]) for part in (1, 2))
        found[name + "experts_gate"], found[name + "experts_up"] = np.split(first, 2, axis=1)
        found[name + "experts_down"] = second
    return found


def of_megatron(weights, sizes):
    """Return Megatron's name -> array from arrays with neutral names, with the fused matrices joined."""
    found = {theirs: weights[ours] for ours, theirs in names(sizes).items() if ours in weights}
    for layer in range(sizes.layers):
        place, name = f"decoder.layers.{layer}.", f"layers.{layer}."
        queries = weights[name + "query"].reshape(sizes.groups, sizes.per_group, sizes.head, sizes.hidden)
        key, value = weights[name + "key"][:, None], weights[name + "value"][:, None]
        found[place + QKV] = np.concatenate([queries, key, value], axis=1).reshape(-1, sizes.hidden)
        found[place + PROJECTION] = weights[name + "attention_output"].reshape(sizes.hidden, -1)
        if not sizes.experts:
            found[place + FC1] = np.concatenate([weights[name + "gate"], weights[name + "up"]])
        for expert in range(sizes.experts):
            own = f"{place}{EXPERTS}.{expert}.linear_fc"
            gate, up = (weights[f"{name}experts_{part}"][expert] for part in ("gate", "up"))
            found[f"{own}1.weight"] = np.concatenate([gate, up])
            found[f"{own}2.weight"] = weights[name + "experts_down"][expert]
    return found


def array_of(tensor):
    return tensor.detach().float().cpu().numpy().copy()


def load_parameters(gpt, tensors):
    fill(dict(gpt.named_parameters()), tensors)


def fill(parameters, tensors):
    """Copy each array into its parameter. Exit unless arrays and parameters have the same names and shapes."""
    import torch

    own = {name.replace(WRAPPED, "."): parameter for name, parameter in parameters.items()}
    if own.keys() != tensors.keys():
        raise SystemExit(f"stepmark: weights and parameters differ in names: {sorted(own.keys() ^ tensors.keys())}")
    with torch.no_grad():
        for name, parameter in own.items():
            if tuple(parameter.shape) != tensors[name].shape:
                raise SystemExit(f"stepmark: {name} has shape {tuple(parameter.shape)}, not {tensors[name].shape}")
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(tensors[name])))
