"""Stands for the fused kernels of Transformer Engine: the same tensors are kept, and nothing is computed.

The tensors that each kernel keeps were read in Transformer Engine's source (VERSION). Loaded by path.
"""

import contextlib

import torch

VERSION = "2.20.2"
ledger = None  # of the stage that is traced


def add_to_buffer(inputs, gradients, buffer):
    ledger.add_to_buffer(inputs, gradients, buffer)


class FusedAttention(torch.autograd.Function):
    """Query, key, value, output, and a number for each head and token. In a context group, key and value are one.

    Transformer Engine copies a value that is still a part of the fused matrix (get_qkv_layout), so that is freed.
    """

    @staticmethod
    def forward(ctx, query, key, value, context):
        query, key, value = (one.contiguous() for one in (query, key, value))
        out = torch.empty_like(query)
        statistics = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        ctx.parts = [key.shape, value.shape]
        pair = torch.cat([key.view(-1), value.view(-1)]) if context > 1 else None
        ctx.save_for_backward(query, out, statistics, *([pair] if context > 1 else [key, value]))
        ctx.flops = 4 * out.numel() * key.shape[0] * context  # two matmuls, nothing masked
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

    def forward(self, query, key, value, *_, **__):
        return FusedAttention.apply(query, key, value, self.context).flatten(2)


class FusedNorm(torch.autograd.Function):
    """Its input, and a number for each row."""

    @staticmethod
    def forward(ctx, x, weight):
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
    """Only the angles, which all layers share."""

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
    """The gradient, which is written over the logits."""

    @staticmethod
    def forward(ctx, logits, labels):
        ctx.save_for_backward(logits.detach())
        return torch.empty(labels.shape, dtype=torch.float32, device=logits.device)

    @staticmethod
    def backward(ctx, _):
        return *ctx.saved_tensors, None


class KeptTensor(torch.autograd.Function):
    """Keeps a tensor until the backward pass."""

    @staticmethod
    def forward(ctx, out, kept):
        ctx.save_for_backward(kept)
        return out.view_as(out)

    @staticmethod
    def backward(_, gradient):
        return gradient, None


def small(tensor):
    """An fp8 copy of a matmul's input, and what stands for the input in the backward pass."""
    return torch.empty(tensor.shape, dtype=torch.uint8, device=tensor.device), tensor.dtype


def linear(kind, *, fp8, keeps_original):
    """Megatron's own linear layer, which keeps what Transformer Engine's does, but for two things.

    In fp8 the input is kept as fp8, unless `keeps_original`. If its norm's output is returned for an adapter
    (`returns_norm`), this rank's share of that is kept, even for a frozen weight.
    """

    class Linear(kind):
        returns_norm = False
        is_stand_in = True

        def forward(self, x, *args, **kwargs):
            with self._saving():
                out, bias = super().forward(x, *args, **kwargs)
            if self.returns_norm and self.config.sequence_parallel and not self.weight.requires_grad:
                out = KeptTensor.apply(out, small(x)[0] if fp8 else x.detach())
            return out, bias

        def _saving(self):
            def pack(tensor):
                return tensor if isinstance(tensor, torch.nn.Parameter) or tensor.dim() < 3 else small(tensor)

            def unpack(packed):
                if isinstance(packed, torch.Tensor):
                    return packed
                return torch.empty(packed[0].shape, dtype=packed[1], device=packed[0].device)

            if fp8 and not keeps_original:
                return torch.autograd.graph.saved_tensors_hooks(pack, unpack)
            return contextlib.nullcontext()

    return Linear
