"""What a compiled step sends between devices, beside the formulas: a line for each axis of the layout. Pure."""

from collections.abc import Iterable

from benchmarks import flops
from benchmarks.capacity import compute_bytes, tokens_per_device
from benchmarks.compilation.compiled import Cause, Collective, Compiled, Line, causes_of, multiplies_embedding
from benchmarks.values import Benchmark

WIRE = 1e-3  # relative to all traffic of the step


def traffic(benchmark: Benchmark, compiled: Compiled) -> list[Line]:
    """A line for each axis of the layout that exchanges anything, and one for all other collectives."""
    whole = WIRE * max(compiled.wire_bytes, _fsdp_bytes(benchmark)) + _norm_bytes(benchmark)
    share = benchmark.parallelism
    looked_up = [] if multiplies_embedding(benchmark) else [g for g in compiled.collectives if g.what == "embedding"]
    lines, left = [], [group for group in compiled.collectives if group not in looked_up]
    for wanted, size, line in (
        ({*_weight_axes(benchmark)}, _weight_group(benchmark), _fsdp),
        ({"data"}, share.data, _data),
        ({"tensor"}, share.tensor, _tensor),
        ({"context"}, share.context, _context),
    ):
        mine = [group for group in left if set(group.axes) == wanted]
        left = [group for group in left if group not in mine]
        if size > 1:
            lines.append(line(benchmark, mine, whole))
        else:
            left.extend(mine)
    if not multiplies_embedding(benchmark):
        lines.append(_lookup(benchmark, looked_up, whole))
    return [*lines, _other(benchmark, left, whole)]


def _norm_bytes(benchmark: Benchmark) -> float:
    """Of all norms' scales, gathered twice and summed: they are so small that they may go along any axis."""
    scales = (2 * benchmark.model.layers + 1) * benchmark.model.hidden_size
    return 4.0 * scales * compute_bytes(benchmark) * benchmark.gradient_accumulation


def _weight_axes(benchmark: Benchmark) -> list[str]:
    """The axes that weights are gathered along: those of FSDP, and of the context where it shares weights too."""
    share = benchmark.parallelism
    return [name for name in ("fsdp", "context") if getattr(share, name) > 1] or ["fsdp"]


def _weight_group(benchmark: Benchmark) -> int:
    return benchmark.parallelism.fsdp * benchmark.parallelism.context


def _weight_bytes(benchmark: Benchmark) -> float:
    """All weights in the type they are multiplied in, of a tensor group's device."""
    return flops.parameter_count(benchmark.model) * compute_bytes(benchmark) / benchmark.parallelism.tensor


def _sent(size: int) -> float:
    """The share of a buffer that a device sends when a ring gathers or scatters it."""
    return (size - 1) / size


def _fsdp_bytes(benchmark: Benchmark) -> float:
    """Of all micro-steps: each gathers all weights anew, and adds its gradients up by itself."""
    return 3 * _weight_bytes(benchmark) * _sent(_weight_group(benchmark)) * benchmark.gradient_accumulation


def _token_numbers(groups: list[Collective]) -> Cause:
    """Whole numbers are what a device is told of the others' batches: too few to be in a formula."""
    amount = _wire(group for group in groups if group.kind == "all-gather" and group.dtype == "s32")
    return Cause(text="the numbers of the tokens are gathered for the lookup", amount=amount)


def _micro_steps(benchmark: Benchmark) -> str:
    count = benchmark.gradient_accumulation
    return f" x {count} micro-steps" if count > 1 else ""


def _fsdp(benchmark: Benchmark, groups: list[Collective], tolerance: float) -> Line:
    """All weights gathered forward and backward, all gradients scattered."""
    model, per_weight = benchmark.model, compute_bytes(benchmark) * _sent(_weight_group(benchmark))
    per_weight *= benchmark.gradient_accumulation / benchmark.parallelism.tensor
    table = flops.embedding_parameters(model)
    head = (0 if model.tied_embeddings else table) + model.hidden_size
    if multiplies_embedding(benchmark):
        lookup = Cause(text="the embedding is gathered once: its backward needs no table", amount=-table * per_weight)
    else:
        lookup = Cause(text="the embedding is looked up: in a line of its own", amount=-3 * table * per_weight)
    numbers = [group for group in groups if group.kind == "all-reduce"]
    n = _weight_group(benchmark)
    return Line(
        what=f"weights and gradients over {' and '.join(_weight_axes(benchmark))}",
        unit="bytes",
        formula=f"3 P x {compute_bytes(benchmark)} x {n - 1}/{n}{_micro_steps(benchmark)}: two gathers and a scatter",
        expected=_fsdp_bytes(benchmark),
        counted=_wire(groups),
        tolerance=tolerance,
        causes=causes_of(
            lookup,
            Cause(
                text="the head and the last norm are gathered once for forward and backward",
                amount=-head * per_weight,
            ),
            _gathered_in_fp8(benchmark),
            Cause(text="sums of numbers over all devices", amount=_wire(numbers)),
            _token_numbers(groups),
            _gathered_once_more(benchmark, groups, table * per_weight),
        ),
    )


def _gathered_in_fp8(benchmark: Benchmark) -> Cause:
    """A layer's matrices are made fp8 where they lie, and travel so."""
    saved = compute_bytes(benchmark) - 1 if benchmark.dtype == "fp8" else 0
    matrices = benchmark.model.layers * flops.layer_matmul_weights(benchmark.model) / benchmark.parallelism.tensor
    amount = -2 * matrices * saved * _sent(_weight_group(benchmark)) * benchmark.gradient_accumulation
    return Cause(text="matrices of layers are gathered in fp8: one byte for two", amount=amount)


def _gathered_once_more(benchmark: Benchmark, groups: list[Collective], table_bytes: float) -> Cause:
    """Beside a tensor axis, the partitioner gathers some weights again for a matmul that is shared out otherwise."""
    gathers = [group for group in groups if group.kind == "all-gather"]
    forward = _wire(group for group in gathers if group.in_a_loop and group.part == "forward")
    again = _wire(group for group in gathers if group.in_a_loop and group.part != "forward")
    head = _wire(group for group in gathers if group.what == "head")
    amount = again - forward + head - table_bytes if benchmark.parallelism.tensor > 1 else 0.0
    return Cause(text="beside a tensor axis, some weights are gathered once more", amount=amount)


def _data(benchmark: Benchmark, groups: list[Collective], tolerance: float) -> Line:
    """All gradients of a replica summed over the others."""
    d = benchmark.parallelism.data
    shards = benchmark.parallelism.tensor * _weight_group(benchmark)
    gradients = _weight_bytes(benchmark) / _weight_group(benchmark)
    table = flops.embedding_parameters(benchmark.model) * compute_bytes(benchmark) / shards
    looked_up = -2 * table * _sent(d) * benchmark.gradient_accumulation
    return Line(
        what="gradients over data",
        unit="bytes",
        formula=f"2 P / shards x {compute_bytes(benchmark)} x {d - 1}/{d}{_micro_steps(benchmark)}: an all-reduce",
        expected=2 * gradients * _sent(d) * benchmark.gradient_accumulation,
        counted=_wire(groups),
        tolerance=tolerance,
        causes=[]
        if multiplies_embedding(benchmark)
        else [Cause(text="the embedding is looked up: in a line of its own", amount=looked_up)],
    )


# Of a layer's hidden states, forward: gathered before attention and before the MLP, scattered behind each; as often
# backward.
TENSOR_EXCHANGES = 8
BACKWARD_GATHERS = 2
# Query, key, value, gate and up are five matmuls with two inputs.
APART = 3


def _tensor(benchmark: Benchmark, groups: list[Collective], tolerance: float) -> Line:
    """The hidden states of a group's tokens, put together before a matmul and shared out behind it."""
    t, model = benchmark.parallelism.tensor, benchmark.model
    tokens = tokens_per_device(benchmark) * benchmark.gradient_accumulation
    each = model.layers * tokens * model.hidden_size * compute_bytes(benchmark) * _sent(t)
    again = [group for group in groups if group.part == "recomputed"]
    outside = [group for group in groups if group not in again and not group.in_a_loop]
    sums = [group for group in groups if group not in [*again, *outside] and group.dtype == "f32"]
    gathered = [
        group for group in groups if group.part == "backward" and group.kind == "all-gather" and group.in_a_loop
    ]
    return Line(
        what="hidden states over tensor",
        unit="bytes",
        formula=f"{TENSOR_EXCHANGES} L x tokens of a group x h x {compute_bytes(benchmark)} x {t - 1}/{t}",
        expected=TENSOR_EXCHANGES * each,
        counted=_wire(groups),
        tolerance=tolerance,
        causes=causes_of(
            Cause(text="query gathers its input, key and value theirs, though they are one: 1 a layer", amount=each),
            Cause(
                text="backward, the shares of query, key, value, gate and up are summed apart: 3 a layer",
                amount=APART * each,
            ),
            Cause(
                text="backward gathers for weights that are shared otherwise",
                amount=_wire(gathered) - BACKWARD_GATHERS * each,
            ),
            Cause(text="what is computed again is exchanged again", amount=_wire(again)),
            Cause(text="the embedding, the head and the loss", amount=_wire(outside)),
            Cause(text="norms sum their squares over the group", amount=_wire(sums)),
        ),
    )


def _context(benchmark: Benchmark, groups: list[Collective], tolerance: float) -> Line:  # noqa: ARG001
    """Plain attention shares a sequence in a way of its own: there is no formula for it to be held against."""
    return Line(
        what="sequences over context",
        unit="bytes",
        formula="none: a fused attention exchanges keys and values, the plain one what its compiler chose",
        expected=0.0,
        counted=_wire(groups),
        tolerance=tolerance,
        causes=causes_of(Cause(text="the plain attention's own exchanges", amount=_wire(groups))),
    )


def _lookup(benchmark: Benchmark, groups: list[Collective], tolerance: float) -> Line:
    """Rows of the table travel to their tokens, or the table itself does, as the partitioner finds it cheaper.

    Never more than the table once, its gradient summed over all devices, and the rows of all tokens.
    """
    each = compute_bytes(benchmark)
    table = flops.embedding_parameters(benchmark.model) * each
    rows = tokens_per_device(benchmark) * benchmark.gradient_accumulation * benchmark.model.hidden_size * each
    most = (3 * table) * benchmark.gradient_accumulation + 4 * rows
    return Line(
        what="embedding looked up",
        unit="bytes",
        formula=f"the table, twice its gradient{_micro_steps(benchmark)}, and four times the rows of all tokens",
        expected=most,
        counted=_wire(groups),
        tolerance=tolerance,
        at_most=True,
    )


def _other(benchmark: Benchmark, groups: list[Collective], tolerance: float) -> Line:
    permutes = [group for group in groups if group.kind == "collective-permute"]
    swapped = _wire(permutes) if benchmark.parallelism.tensor > 1 else 0.0
    return Line(
        what="other collectives",
        unit="bytes",
        formula="none: sums of numbers",
        expected=0.0,
        counted=_wire(groups),
        tolerance=tolerance,
        causes=causes_of(
            Cause(text="beside a tensor axis, devices swap shares of hidden states", amount=swapped),
            _token_numbers(groups),
        ),
    )


def _wire(groups: Iterable[Collective]) -> float:
    return sum(group.wire_bytes for group in groups)
