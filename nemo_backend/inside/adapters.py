"""Correct NeMo's separate adapters for query, key, value, gate and up, which Megatron stores in two fused matrices.

NeMo's CanonicalLoRA adds such adapters to the wrong heads. Megatron stores each group's queries, key and value
together, but NeMo 2.7.3 assumes all queries, then all keys, then all values. If there is more than one group, the
adapter of a query thus changes a key. NeMo also calls adapters that were not requested. This module corrects both
errors without changing NeMo's source. The worker loads it by path inside NeMo's environment.
"""

import types

SEPARATE = ("linear_q", "linear_k", "linear_v", "linear_fc1_gate", "linear_fc1_up")


def without_transformer_engine():
    """Make NeMo's LoRA work without Transformer Engine, to whose classes NeMo refers even if it is not installed."""
    from nemo.collections.llm.peft import lora, utils

    if not lora.HAVE_TE:
        utils.HAVE_TE = False
        lora.te = types.SimpleNamespace(Linear=type("NoSuchLinear", (), {}))


def separate(fields, *, in_order=True):
    """Return NeMo's CanonicalLoRA, corrected to Megatron's order unless `in_order` is false."""
    from nemo.collections.llm.peft import canonical_lora

    found = canonical_lora.CanonicalLoRA(**fields)
    if in_order:
        put_right(found, canonical_lora)
    return found


def put_right(peft, canonical_lora):
    """Give each wrapper of a fused matrix a forward pass that follows Megatron's order."""
    own = peft.transform
    ordered = {
        canonical_lora.LoRALinearSplitQKV: attention_forward,
        canonical_lora.LoRALinearSplitFC1UpGate: gate_and_up_forward,
    }

    def transform(module, name=None, prefix=None):
        made = own(module, name=name, prefix=prefix)
        if type(made) in ordered:
            made.forward = ordered[type(made)].__get__(made)
        return made

    peft.transform = transform


def attention_forward(wrapper, x):
    """Return the layer's output plus the adapters' outputs in Megatron's order: per group the queries, key, value."""
    import torch

    output, bias, normed = wrapper.base_linear_forward(x)
    config, adapter = wrapper.to_wrap.config, wrapper.adapter
    head, queries = config.kv_channels, config.num_attention_heads // config.num_query_groups
    groups = output.shape[-1] // (head * (queries + 2))  # the groups on this device
    parts = [
        grouped(part, normed, groups, width)
        for part, width in (
            (adapter.adapter_q, queries * head),
            (adapter.adapter_k, head),
            (adapter.adapter_v, head),
        )
    ]
    return output + torch.cat(parts, dim=-1).reshape(output.shape), bias


def gate_and_up_forward(wrapper, x):
    import torch

    output, bias, normed = wrapper.base_linear_forward(x)
    both = (wrapper.adapter.adapter_gate, wrapper.adapter.adapter_up)
    parts = [grouped(part, normed, 1, output.shape[-1] // 2) for part in both]
    return output + torch.cat(parts, dim=-1).reshape(output.shape), bias


def grouped(adapter, normed, groups, width):
    """Return the output of an adapter as [sequence, batch, groups, width]; zeros if there is no adapter."""
    shape = (*normed.shape[:2], groups, width)
    return normed.new_zeros(shape) if adapter is None else adapter(normed.contiguous()).reshape(shape)
