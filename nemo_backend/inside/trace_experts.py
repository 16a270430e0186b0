"""Stand-ins for the fused kernels of layers with experts. They keep the same tensors as the kernels.

Transformer Engine has the grouped matmuls, the router's top-k and the rotation for latent attention. DeepEP and
HybridEP exchange the tokens. Megatron's own classes call these stand-ins; trace_program.py loads this module by path.
"""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import torch
from megatron.core.fusions import fused_bias_swiglu
from megatron.core.models.backends import LocalSpecProvider
from megatron.core.models.gpt import gpt_layer_specs
from megatron.core.tensor_parallel import random
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import multi_latent_attention
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.moe import experts, moe_layer, router
from megatron.core.transformer.moe.token_dispatcher import MoETokenDispatcher
from megatron.core.transformer.transformer_layer import TransformerLayer

stand_ins = None  # trace_stand_ins.py, set by trace_program.py


# --- experts --------------------------------------------------------------------------------------


class GroupedMatmul(torch.autograd.Function):
    """Multiply each expert's rows by its weight. Keep the rows, with `kept` in their quantized form."""

    @staticmethod
    def forward(ctx, rows, kept, label, *weights):
        ctx.save_for_backward(rows if kept is None else kept, *weights)
        ctx.label, ctx.rows, ctx.dtype = label, rows.shape, rows.dtype
        ctx.flops = 2 * rows.numel() * weights[0].shape[0]
        stand_ins.ledger.flops[label, stand_ins.ledger.part()] += ctx.flops
        return rows.new_empty(*rows.shape[:-1], weights[0].shape[0])

    @staticmethod
    def backward(ctx, gradient):
        weights = ctx.saved_tensors[1:]
        stand_ins.ledger.flops[ctx.label, stand_ins.ledger.part()] += 2 * ctx.flops
        made = gradient.new_empty(ctx.rows, dtype=ctx.dtype)
        if hasattr(weights[0], "main_grad"):  # the kernel adds the weights' gradients to their buffer
            shape = tuple(weights[0].shape)
            if stand_ins.ledger.dummies.get(shape, 0) is None:
                stand_ins.ledger.dummies[shape] = torch.empty(shape, dtype=ctx.dtype)
            return made, None, None, *(None for _ in weights)
        return made, None, None, *(torch.empty_like(one) for one in weights)


class GroupedLinear(torch.nn.Module):
    is_stand_in = True
    number_bytes = None  # of a quantized number that is kept with its scales; None: kept as it is
    keeps_original = False

    def __init__(self, num_gemms, input_size, output_size, *, config, bias, skip_bias_add, **_):
        super().__init__()
        self.config, self.skip_bias_add, self.count = config, skip_bias_add, num_gemms
        for number in range(num_gemms):
            self._add(f"weight{number}", (output_size, input_size))
            if bias:
                self._add(f"bias{number}", (output_size,))
        self.biased = bias

    def _add(self, name, shape):
        parameter = torch.nn.Parameter(torch.empty(shape, dtype=self.config.params_dtype))
        parameter.allreduce = self.config.expert_model_parallel_size == 1
        self.register_parameter(name, parameter)

    @property
    def weight(self):
        return self.weight0

    def forward(self, rows, _):
        weights = [getattr(self, f"weight{number}") for number in range(self.count)]
        small = self.number_bytes and not self.keeps_original
        kept = stand_ins.small(rows, self.number_bytes)[0] if small else None
        out = GroupedMatmul.apply(rows, kept, stand_ins.ledger.module(), *weights)
        # The kernel adds the biases, or Megatron does so later.
        later = self.biased and self.skip_bias_add
        return out, [getattr(self, f"bias{number}") for number in range(self.count)] if later else None


class WholeLinear(GroupedLinear):
    """A matmul whose whole weight is on each device of a tensor group: a down projection of latent attention."""

    def __init__(self, input_size, output_size, *, config, **_):
        super().__init__(1, input_size, output_size, config=config, bias=False, skip_bias_add=False)
        self.weight.allreduce, self.weight.sequence_parallel = True, config.sequence_parallel

    def forward(self, x):
        return super().forward(x, None)


def repeat_down_projections(layer_specs):
    """Put these matmuls into the specifications of layers with latent attention."""
    for spec in layer_specs:
        parts = spec.submodules.self_attention.submodules
        if getattr(parts, "linear_kv_down_proj", None):
            parts.linear_q_down_proj = parts.linear_kv_down_proj = multi_latent_attention.TELinear


# --- the exchange of tokens -----------------------------------------------------------------------


class Counts(list):
    """The number of rows of each local expert, as Megatron reads it from a tensor."""

    def tolist(self):
        return list(self)


class Exchange(torch.autograd.Function):
    """Return a new tensor, whose gradient has the shape of the original. Keep no tensor.

    If `devices` is more than 1, an all-to-all moves the rows.
    """

    @staticmethod
    def forward(ctx, x, shape, devices=1):
        ctx.shape, ctx.devices = x.shape, devices
        return Exchange.to(x, shape, devices)

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.to(gradient, ctx.shape, ctx.devices), None, None

    @staticmethod
    def to(x, shape, devices):
        made = x.new_empty(shape)
        if devices > 1:
            sent_bytes = max(x.nbytes, made.nbytes) * (devices - 1) / devices
            stand_ins.ledger.count_sent("all-to-all", "expert", devices, sent_bytes)
        return made


class Dispatcher(MoETokenDispatcher):
    """Send each token to its experts, and their outputs back. Every device gets the same number of rows.

    HybridEP and DeepEP make one copy of the rows in each direction. Megatron's all-to-all sorts them before and after
    the exchange.
    """

    def __init__(self, num_local_experts, local_expert_indices, config, pg_collection=None):  # noqa: ARG002
        super().__init__(config=config, pg_collection=pg_collection)
        self.experts, self.sorts = num_local_experts, config.moe_token_dispatcher_type == "alltoall"

    def dispatch_preprocess(self, x, routing_map, probabilities):
        self.shape, self.routing_map = x.shape, routing_map
        self.tokens = torch.Size([x.shape[0] * x.shape[1], x.shape[2]])
        self.rows = torch.Size([self.tokens[0] * self.config.moe_router_topk, x.shape[2]])
        return self._sorted(x.view(self.tokens), self.rows), probabilities

    def token_dispatch(self, x, probabilities):
        return Exchange.apply(x, self.rows, self.ep_size), Exchange.apply(probabilities, self.rows[:1])

    def dispatch_postprocess(self, x, probabilities):
        counts = Counts([self.rows[0] // self.experts] * self.experts)
        return self._sorted(x, self.rows), counts, probabilities

    def combine_preprocess(self, x):
        return self._sorted(x, self.rows)

    def token_combine(self, x):
        return self._sorted(Exchange.apply(x, self.rows if self.sorts else self.tokens, self.ep_size), self.tokens)

    def combine_postprocess(self, x):
        return x.view(self.shape)

    def _sorted(self, x, shape):
        return Exchange.apply(x, shape) if self.sorts else x


class TopK(torch.autograd.Function):
    """Keep the scores and the map of the chosen experts."""

    @staticmethod
    def forward(ctx, logits):
        chosen = torch.empty(logits.shape, dtype=torch.bool, device=logits.device)
        ctx.save_for_backward(torch.empty_like(logits, dtype=torch.float32), chosen)
        ctx.dtype = logits.dtype
        ctx.mark_non_differentiable(chosen)
        return torch.empty_like(logits, dtype=torch.float32), chosen

    @staticmethod
    def backward(ctx, gradient, _):
        return torch.empty_like(gradient, dtype=ctx.dtype)


# --- latent attention -----------------------------------------------------------------------------


class RotatedKeyValue(torch.autograd.Function):
    """Return new tensors for key and value. Keep no tensor."""

    @staticmethod
    def forward(ctx, both, rotated, key_size, value_size):
        ctx.shapes = both.shape, rotated.shape
        return both.new_empty(*both.shape[:-1], key_size), both.new_empty(*both.shape[:-1], value_size)

    @staticmethod
    def backward(ctx, key, _):
        return *(key.new_empty(shape) for shape in ctx.shapes), None, None


# --- installation ---------------------------------------------------------------------------------


def kernels_of(job):
    """Return the class by which Megatron selects the parts of its layers."""
    size = job.kept_number_bytes
    column, row = (stand_ins.linear(kind, quantized_bytes=size) for kind in (ColumnParallelLinear, RowParallelLinear))
    multi_latent_attention.TELinear = type("WholeLinear", (WholeLinear,), {"number_bytes": size})
    grouped = type("GroupedLinear", (GroupedLinear,), {"number_bytes": size})
    mlp = experts.GroupedMLPSubmodules(linear_fc1=grouped, linear_fc2=grouped)

    class Kernels(LocalSpecProvider):
        def column_parallel_linear(self):
            return column

        def row_parallel_linear(self):
            return row

        def layer_norm(self, **_):
            return stand_ins.Norm

        def core_attention(self):
            return stand_ins.CoreAttention

        def grouped_mlp_modules(self, _):
            return partial(experts.TEGroupedMLP, submodules=mlp)

    return Kernels


def install(job):
    """Replace the kernels in Megatron's modules."""
    resize = torch.UntypedStorage.resize_

    def resized(storage, size):
        if size == 0:
            stand_ins.ledger.release(storage)
        return resize(storage, size)

    torch.UntypedStorage.resize_ = resized
    # Megatron asks Transformer Engine whether a recomputed function runs in 8 bits, even if the model does not.
    random.FP8GlobalStateManager = SimpleNamespace(is_fp8_enabled=lambda: False)
    random.activation_recompute_forward = random.fp8_autocast = lambda **_: nullcontext()
    # Megatron's extension lets the discarded tensor use the storage of the recomputed one.
    random._get_share_storage = lambda: lambda old, new: resize(old.untyped_storage(), new.untyped_storage().nbytes())
    gpt_layer_specs.LocalSpecProvider, gpt_layer_specs.LNImpl = kernels_of(job), stand_ins.Norm
    for name in ("MoEAlltoAllTokenDispatcher", "MoEFlexTokenDispatcher"):
        setattr(moe_layer, name, Dispatcher)
    router.topk_routing_with_score_function = lambda logits, *_, **__: TopK.apply(logits)
    router.apply_random_logits = lambda logits: logits
    fused_bias_swiglu.weighted_swiglu = lambda x, _: stand_ins.swiglu(x)
    fused_bias_swiglu.weighted_swiglu_back = lambda _, *kept: tuple(torch.empty_like(one) for one in kept)
    multi_latent_attention.fused_apply_mla_rope_for_q = lambda query, *_: query.view_as(query)
    multi_latent_attention.fused_apply_mla_rope_for_kv = (
        lambda both, rotated, _cos, _sin, rotated_size, key_size, value_size, *_: RotatedKeyValue.apply(
            both, rotated, rotated_size + key_size, value_size
        )
    )


def keep_as_transformer_engine(chunk, job):
    """Set what the layers of a model chunk keep. Megatron decides this by Transformer Engine's classes."""
    for layer in (one for one in chunk.modules() if isinstance(one, TransformerLayer)):
        config, attention, shared = layer.config, layer.self_attention, getattr(layer.mlp, "shared_experts", None)
        modules = config.recompute_modules if config.recompute_granularity == "selective" else []
        # A norm is part of the next matmul, but not before experts or the down projections of latent attention.
        layer.recompute_input_layernorm &= config.multi_latent_attention
        layer.recompute_pre_mlp_layernorm &= layer.is_moe_layer
        fused = [] if layer.is_moe_layer else [(layer, "pre_mlp_layernorm", layer.mlp.linear_fc1)]
        if config.multi_latent_attention:
            fused += [
                (attention, f"{part}_layernorm", getattr(attention, f"linear_{part}_up_proj")) for part in ("q", "kv")
            ]
        for module, name, linear in fused:
            linear.norm = getattr(module, name)
            setattr(module, name, IdentityOp())
        originals = [] if job.fp8_recipe == "delayed" else [attention.linear_proj]
        if layer.recompute_input_layernorm:
            originals += [attention.linear_q_down_proj, attention.linear_kv_down_proj]
        if shared is not None and "shared_experts" not in modules:
            originals.append(shared.linear_fc1)  # the router keeps the same tensor
        if layer.is_moe_layer and "moe_act" in modules:
            originals.append(layer.mlp.experts.linear_fc2)
        for linear in originals:
            linear.keeps_original = True
