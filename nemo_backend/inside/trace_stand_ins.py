"""Stand-ins for Transformer Engine's fused kernels. They keep the same tensors as the kernels, but compute nothing.

The kept tensors are those in Transformer Engine's source, in the version that tracing.py names. trace_program.py
loads this module by path.
"""

import contextlib

import torch

ledger = None  # the Ledger of the stage that is being traced


def add_to_buffer(inputs, gradients, buffer):
    ledger.add_to_buffer(inputs, gradients, buffer)


class FusedAttention(torch.autograd.Function):
    """Keep query, key, value, output, and one number per head and token. A context group keeps key and value joined.

    Transformer Engine copies a value that is a slice of the fused QKV output (get_qkv_layout). The output is freed.
    """

    @staticmethod
    def forward(ctx, query, key, value, context):
        query, key, value = (one.contiguous() for one in (query, key, value))
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        statistics = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        ctx.parts = [key.shape, value.shape]
        pair = torch.cat([key.view(-1), value.view(-1)]) if context > 1 else None
        ctx.save_for_backward(query, out, statistics, *([pair] if context > 1 else [key, value]))
        ctx.flops = 2 * (query.numel() + out.numel()) * key.shape[0] * context  # two matmuls, nothing masked
        ledger.flops[ATTENTION, ledger.part()] += ctx.flops
        ctx.context, ctx.ring_bytes = context, (context - 1) * (key.nbytes + value.nbytes)
        if context > 1:
            ledger.count_sent("send", "context", context, ctx.ring_bytes)
        return out

    @staticmethod
    def backward(ctx, _):
        query = ctx.saved_tensors[0]
        ledger.flops[ATTENTION, ledger.part()] += 2 * ctx.flops
        if ctx.context > 1:  # key and value, and their gradients
            ledger.count_sent("send", "context", ctx.context, 2 * ctx.ring_bytes)
        made = [torch.empty(shape, dtype=query.dtype, device=query.device) for shape in ctx.parts]
        return torch.empty_like(query), *made, None


ATTENTION = "self_attention.core_attention"


class CoreAttention(torch.nn.Module):
    def __init__(self, config, **_):
        super().__init__()
        self.context = config.context_parallel_size
        if getattr(config, "softmax_type", "vanilla") == "learnable":
            heads = config.num_attention_heads // config.tensor_model_parallel_size
            self.softmax_offset = torch.nn.Parameter(torch.empty(heads, dtype=config.params_dtype))

    def forward(self, query, key, value, *_, **__):
        return FusedAttention.apply(query, key, value, self.context).flatten(2)


class FusedNorm(torch.autograd.Function):
    """Keep the input without gaps, the weight, and one number per token."""

    @staticmethod
    def forward(ctx, x, weight):
        x = x.contiguous()
        ctx.save_for_backward(x, weight, torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, _):
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight) if ctx.needs_input_grad[1] else None


class Norm(torch.nn.Module):
    def __init__(self, config, hidden_size, eps=1e-5, **_):  # noqa: ARG002 - Megatron's signature
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        return FusedNorm.apply(x, self.weight)


class FusedRope(torch.autograd.Function):
    """Keep no tensor, because all layers share the rotation angles."""

    @staticmethod
    def forward(_, x):
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    @staticmethod
    def backward(_, gradient):
        return torch.empty_like(gradient)


def swiglu(gate_and_up):
    return gate_and_up.new_empty((*gate_and_up.shape[:-1], gate_and_up.shape[-1] // 2))


def swiglu_back(_, gate_and_up):
    return torch.empty_like(gate_and_up)


class FusedLoss(torch.autograd.Function):
    """Keep the gradient, which overwrites the logits."""

    @staticmethod
    def forward(ctx, logits, labels):
        ctx.save_for_backward(logits.detach())
        return torch.empty(labels.shape, dtype=torch.float32, device=logits.device)

    @staticmethod
    def backward(ctx, _):
        return *ctx.saved_tensors, None


class KeptTensor(torch.autograd.Function):
    """Keep one more tensor until the backward pass."""

    @staticmethod
    def forward(ctx, out, kept):
        ctx.save_for_backward(kept)
        return out.view_as(out)

    @staticmethod
    def backward(_, gradient):
        return gradient, None


def small(tensor, number_bytes):
    """Return a tensor of the size of a quantized copy with its scales, and the shape and type of the original."""
    width = round(tensor.shape[-1] * number_bytes)
    copy = torch.empty(*tensor.shape[:-1], width, dtype=torch.uint8, device=tensor.device)
    return copy, tensor.shape, tensor.dtype


def linear(kind, *, quantized_bytes):
    """Return a class of Megatron's linear layers that keeps the same tensors as Transformer Engine's layer.

    With `quantized_bytes` per number, the layer keeps its input quantized, unless `keeps_original`. If it
    also returns its norm's output to an adapter (`returns_norm`), it keeps this rank's share of that output even if
    the weight is frozen.
    """

    class Linear(kind):
        returns_norm = False
        is_stand_in = True
        keeps_original = False  # also in quantized layers

        def forward(self, x, *args, **kwargs):
            x = self.norm(x) if hasattr(self, "norm") else x  # Transformer Engine's fused norm
            with self._saving():
                out, bias = super().forward(x, *args, **kwargs)
            if self.returns_norm and self.config.sequence_parallel and not self.weight.requires_grad:
                out = KeptTensor.apply(out, small(x, quantized_bytes)[0] if quantized_bytes else x.detach())
            return out, bias

        def _saving(self):
            def pack(tensor):
                kept = isinstance(tensor, torch.nn.Parameter) or tensor.dim() < 3
                return tensor if kept else small(tensor, quantized_bytes)

            def unpack(packed):
                if isinstance(packed, torch.Tensor):
                    return packed
                return torch.empty(packed[1], dtype=packed[2], device=packed[0].device)

            if quantized_bytes and not self.keeps_original:
                return torch.autograd.graph.saved_tensors_hooks(pack, unpack)
            return contextlib.nullcontext()

    return Linear
