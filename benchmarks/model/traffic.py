"""Computes the traffic of a device in one step, by axis: bytes within a node and bytes between nodes.

Devices are numbered so that the axes are nested: tensor, context, fsdp, data, pipeline. The inner axes fill a node
first, as in both frameworks. Collectives count with their least traffic: a byte crosses the network once per node,
and the devices of a node distribute it over the node's own connections.
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from benchmarks.model.capacity import (
    compute_bytes,
    stage_layers,
    stage_parameters,
    stage_trained_parameters,
    tokens_per_device,
    trained_parameters,
    weight_shards,
)
from benchmarks.model.flops import layer_matmul_weights, routed_parameters
from benchmarks.values import Benchmark, Storage, Value

LINKS = ("node", "network")

# Collectives per layer: an all-gather and a reduce-scatter around attention and around MLP, forward and backward.
TENSOR_COLLECTIVES = 8
# All-to-alls per layer with experts: to the experts and back, forward and backward.
EXPERT_EXCHANGES = 4
# Keys and values are sent in the forward pass and again in the backward pass, then their gradients.
CONTEXT_PASSES = 3


class Traffic(Value, frozen=True):
    """The one-way traffic of one axis through one device in one step."""

    axis: str
    node_bytes: float
    network_bytes: float
    formula: str
    actual_factor: float = 1.0  # the framework's actual traffic, divided by the least possible

    @property
    def bytes_by_link(self) -> dict[str, float]:
        return dict(zip(LINKS, (self.node_bytes, self.network_bytes), strict=True))


class Group(NamedTuple):
    """The placement of the devices along one axis: the number of devices in a node, and the number of nodes."""

    inside: int
    nodes: int

    @property
    def size(self) -> int:
        return self.inside * self.nodes

    def gathered(self, size: float) -> tuple[float, float]:
        """Return the bytes that a device receives within the node and over the network, to gather all `size` bytes.

        A reduce-scatter of the same size moves the same bytes.
        """
        return size * (self.inside - 1) / self.inside, size / self.inside * (self.nodes - 1) / self.nodes


def group(benchmark: Benchmark, axis: str) -> Group:
    """Return the placement of an axis. The axes inside it fill the node first."""
    share = benchmark.parallelism
    sizes = {
        "tensor": share.tensor,
        "context": share.context,
        "fsdp": share.fsdp,
        "data": share.data,
        "pipeline": share.pipeline,
    }
    stride = 1
    for name, size in sizes.items():
        if name == axis:
            inside = _inside(size, stride, benchmark.gpus // benchmark.nodes)
            return Group(inside, size // inside)
        stride *= size
    raise KeyError(axis)


def _inside(size: int, stride: int, node: int) -> int:
    """Return how many of `size` devices, `stride` apart, are in one node."""
    room = max(1, node // stride)
    return max(count for count in range(1, min(size, room) + 1) if size % count == 0)


def joined(benchmark: Benchmark, *axes: str) -> Group:
    """Return the placement of several axes taken together."""
    groups = [group(benchmark, axis) for axis in axes]
    return Group(prod(one.inside for one in groups), prod(one.nodes for one in groups))


def traffic(benchmark: Benchmark, storage: Storage) -> list[Traffic]:
    """Return the traffic of every axis that has traffic."""
    found = [_fsdp(benchmark, storage), _tensor(benchmark, storage), _context(benchmark), _pipeline(benchmark)]
    found.append(_expert(benchmark))
    return [*(moved for axis in found for moved in axis), *_data(benchmark, storage)]


def _fsdp(benchmark: Benchmark, storage: Storage) -> Iterator[Traffic]:
    """Yield the traffic of sharded weights: gathered twice in the compute type, with gradients scattered once."""
    share = benchmark.parallelism
    sharers = joined(benchmark, "context", "fsdp") if storage.weights_over_context else group(benchmark, "fsdp")
    if sharers.size == 1:
        return
    held = stage_parameters(benchmark, storage) / share.tensor
    trained = stage_trained_parameters(benchmark, storage) / share.tensor
    passes = 2 * benchmark.batch.gradient_accumulation
    each = compute_bytes(benchmark)
    small = storage.numbers.matrix_bytes or each
    matrices = stage_layers(benchmark) * layer_matmul_weights(benchmark.model) / share.tensor
    # A device gathers only its part of the experts.
    layers = min(stage_layers(benchmark), benchmark.model.layers - benchmark.model.dense_layers)
    elsewhere = layers * routed_parameters(benchmark.model) * (1 - 1 / share.expert) / share.tensor
    held, trained = held - elsewhere, trained - (elsewhere if benchmark.lora is None else 0)
    gathered = each * (held - matrices) + small * matrices
    node, network = sharers.gathered(passes * gathered + each * trained)
    words = f", {small} for gathered layer matrices" if small != each else ""
    yield Traffic(
        axis="fsdp",
        node_bytes=node,
        network_bytes=network,
        formula=f"{passes} x gathered weights + scattered gradients, {each} bytes each{words}",
    )


def _tensor(benchmark: Benchmark, storage: Storage) -> Iterator[Traffic]:
    share = benchmark.parallelism
    if share.tensor == 1:
        return
    size = TENSOR_COLLECTIVES * stage_layers(benchmark) * _activation_bytes(benchmark)
    node, network = group(benchmark, "tensor").gathered(size)
    yield Traffic(
        axis="tensor",
        node_bytes=node,
        network_bytes=network,
        formula=f"{TENSOR_COLLECTIVES} gathers or scatters of a layer's activations x layers",
        actual_factor=(storage.tensor_exchanges or TENSOR_COLLECTIVES) / TENSOR_COLLECTIVES,
    )


def _context(benchmark: Benchmark) -> Iterator[Traffic]:
    share, model = benchmark.parallelism, benchmark.model
    if share.context == 1:
        return
    width = 2 * model.query_groups * model.head_dim / share.tensor
    whole = tokens_per_step(benchmark) * share.context * width * compute_bytes(benchmark)
    size = CONTEXT_PASSES * stage_layers(benchmark) * whole
    node, network = group(benchmark, "context").gathered(size)
    yield Traffic(
        axis="context",
        node_bytes=node,
        network_bytes=network,
        formula=f"{CONTEXT_PASSES} x keys and values of the whole sequence x layers",
    )


def _pipeline(benchmark: Benchmark) -> Iterator[Traffic]:
    share = benchmark.parallelism
    if share.pipeline == 1:
        return
    # Activations are sent forward and their gradients backward, once for each piece of a stage. With two stages, each
    # stage is an end of the pipeline, so one of its pieces sends only one of the two.
    sent = 2 * share.virtual_pipeline - (share.pipeline == 2)
    size = sent * _activation_bytes(benchmark) / share.tensor
    at = group(benchmark, "pipeline")
    yield Traffic(
        axis="pipeline",
        node_bytes=size if at.nodes == 1 else 0.0,
        network_bytes=size if at.nodes > 1 else 0.0,
        formula=f"{sent} x activations or gradients of every micro-batch",
    )


def _expert(benchmark: Benchmark) -> Iterator[Traffic]:
    """Yield the all-to-alls that bring tokens to their experts and the results back, forward and backward.

    All experts are assumed to get the same number of tokens. The devices of a group are neighbours, so the group
    fills nodes first. Between nodes, fast kernels send one copy of a token for all its experts on a node.
    """
    share, experts = benchmark.parallelism, benchmark.model.experts
    if share.expert == 1 or experts is None:
        return
    layers = min(stage_layers(benchmark), benchmark.model.layers - benchmark.model.dense_layers)
    size = EXPERT_EXCHANGES * layers * experts.active * _activation_bytes(benchmark) / share.tensor
    inside = _inside(share.expert, 1, benchmark.gpus // benchmark.nodes)
    nodes = share.expert / inside
    elsewhere = (nodes - 1) * (1 - (1 - 1 / nodes) ** experts.active)  # other nodes with experts of a token
    yield Traffic(
        axis="expert",
        node_bytes=size * (inside - 1) / share.expert,
        network_bytes=size * elsewhere / experts.active,
        formula=f"{EXPERT_EXCHANGES} all-to-alls of a token's {experts.active} copies x layers with experts",
    )


def _data(benchmark: Benchmark, storage: Storage) -> Iterator[Traffic]:
    """Yield the reduction of gradients over replicas. Context ranks are replicas unless they shard weights."""
    replicas = group(benchmark, "data") if storage.weights_over_context else joined(benchmark, "context", "data")
    if replicas.size == 1:
        return
    trained = trained_parameters(benchmark, storage)
    if benchmark.lora and storage.whole_adapters:
        trained /= weight_shards(benchmark, storage)
    sent = storage.numbers.gradient_bytes if storage.numbers.reduced_bytes is None else storage.numbers.reduced_bytes
    back = sent if storage.numbers.returned_bytes is None else storage.numbers.returned_bytes
    node, network = replicas.gathered((sent + back) * trained)
    words = f"{sent} bytes each way" if back == sent else f"{sent} bytes each; weights returned, {back} bytes each"
    yield Traffic(
        axis="data",
        node_bytes=node,
        network_bytes=network,
        formula=f"gradients summed over {replicas.size} replicas, {words}",
    )


def tokens_per_step(benchmark: Benchmark) -> float:
    """Return the tokens of a whole step that pass through one device."""
    return tokens_per_device(benchmark) * benchmark.batch.gradient_accumulation


def _activation_bytes(benchmark: Benchmark) -> float:
    """Return the bytes of one hidden-size activation for all tokens of a step that a device's group works on."""
    return tokens_per_step(benchmark) * benchmark.model.hidden_size * compute_bytes(benchmark)
