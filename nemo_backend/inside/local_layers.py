"""Layers of Megatron-core for a model without Transformer Engine, loaded by bridge_worker.py.

Megatron-core has all layers of a model with experts, but some of its classes fit only those of Transformer Engine.
The subclasses here compute the same numbers.
"""

import functools

import torch
from megatron.core.models import backends
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.tensor_parallel.layers import RowParallelLinear
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.moe import token_dispatcher


class LatentAttention(DotProductAttention):
    """Attention whose keys and values differ in size. Megatron passes these sizes only to Transformer Engine."""

    def __init__(self, *args, k_channels=None, v_channels=None, **named):
        super().__init__(*args, **named)
        if k_channels is not None:
            self.hidden_size_per_partition = self.num_attention_heads_per_partition * v_channels


class OwnedOutput(RowParallelLinear):
    """A projection whose output is a new tensor, because Megatron adds an expert's bias to it in place."""

    def forward(self, numbers):
        output, bias = super().forward(numbers)
        return (output if bias is None else output.clone()), bias


def as_numbers(tensor, as_numpy=False, record_stream=False):  # noqa: ARG001
    """Return a tensor on a CPU as Megatron-core returns one that it has moved there from a GPU."""
    return tensor.numpy() if as_numpy and hasattr(tensor, "numpy") else tensor


def layer_specs(model):
    """Return the function that chooses a model's layers, dense or with experts."""
    if not torch.cuda.is_available():
        token_dispatcher.maybe_move_tensor_to_cpu = as_numbers
    backends.DotProductAttention, backends.RowParallelLinear = LatentAttention, OwnedOutput
    return functools.partial(
        get_gpt_decoder_block_spec, use_transformer_engine=False, normalization=model.normalization
    )
