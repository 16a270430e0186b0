"""Inside NeMo: adapters of their own beside query, key, value, gate and up, which Megatron has as two fused matrices.

NeMo's CanonicalLoRA makes them, but adds them to the wrong heads: Megatron has each group's queries, its key and its
value together, and NeMo 2.7.3 puts all queries first, then all keys, then all values. With one group that is the
same; with more, a query's adapter changes a key. It also calls adapters that were not asked for. Both are put right
here, without a change of its source. Loaded by path.
"""

SEPARATE = ("linear_q", "linear_k", "linear_v", "linear_fc1_gate", "linear_fc1_up")
NOTE = (
    "separate adapters are added in Megatron's order, each group's queries, key and value together: NeMo's own "
    "CanonicalLoRA has all queries first, which are other heads"
)


def are_separate(fields):
    return any(name in SEPARATE for name in fields["target_modules"])


def notes(settings):
    """What is to be said of the adapters that the worker's settings name."""
    key = "peft.target_modules="
    named = [word.removeprefix(key).split(",") for word in settings if word.startswith(key)]
    return [NOTE] if any(are_separate({"target_modules": names}) for names in named) else []


def separate(fields):
    """NeMo's CanonicalLoRA, which puts its adapters where Megatron has the matrices."""
    from nemo.collections.llm.peft import canonical_lora

    put_right(canonical_lora)
    return canonical_lora.CanonicalLoRA(**fields)


def put_right(canonical_lora):
    """Rebind the two wrappers that CanonicalLoRA looks up late."""
    import torch

    class GroupByGroup(canonical_lora.LoRALinearSplitQKV):
        def forward(self, x):
            output, bias, normed = self.base_linear_forward(x)
            config, adapter = self.to_wrap.config, self.adapter
            head, queries = config.kv_channels, config.num_attention_heads // config.num_query_groups
            groups = output.shape[-1] // (head * (queries + 2))  # of this device
            parts = [
                grouped(part, normed, groups, width)
                for part, width in (
                    (adapter.adapter_q, queries * head),
                    (adapter.adapter_k, head),
                    (adapter.adapter_v, head),
                )
            ]
            return output + torch.cat(parts, dim=-1).reshape(output.shape), bias

    class GateAndUp(canonical_lora.LoRALinearSplitFC1UpGate):
        def forward(self, x):
            output, bias, normed = self.base_linear_forward(x)
            parts = [
                grouped(part, normed, 1, output.shape[-1] // 2)
                for part in (self.adapter.adapter_gate, self.adapter.adapter_up)
            ]
            return output + torch.cat(parts, dim=-1).reshape(output.shape), bias

    canonical_lora.LoRALinearSplitQKV = GroupByGroup
    canonical_lora.LoRALinearSplitFC1UpGate = GateAndUp


def grouped(adapter, normed, groups, width):
    """What an adapter makes, [sequence, batch, groups, width]; nothing where there is none."""
    shape = (*normed.shape[:2], groups, width)
    return normed.new_zeros(shape) if adapter is None else adapter(normed.contiguous()).reshape(shape)
