"""What a compiled step sends between devices, beside the formulas: a line for each axis of the layout. Pure."""

from collections.abc import Iterable

from benchmarks.compilation.compiled import Cause, Collective, Compiled, Line, causes_of, multiplies_embedding
from benchmarks.measuring import flops
from benchmarks.planning.capacity import Storage, compute_bytes, tokens_per_device
from benchmarks.values import Benchmark

# Relative to all traffic of the step, and bytes. Beside a tensor axis the partitioner adds what nobody foretells.
WIRE, FEW_BYTES = 1e-6, 4096.0
WIRE_BESIDE_TENSOR = 1e-3


def traffic(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> list[Line]:
    """A line for each axis of the layout that exchanges anything, and one for all other collectives."""
    whole = _tolerance(benchmark)
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
            lines.append(line(benchmark, storage, mine, whole))
        else:
            left.extend(mine)
    if not multiplies_embedding(benchmark):
        lines.append(_lookup(benchmark, looked_up, whole))
    return [*lines, _other(benchmark, storage, left, whole)]


def _tolerance(benchmark: Benchmark) -> float:
    """By the formulas alone: what a program sends too much must not widen it."""
    if benchmark.parallelism.tensor > 1:
        return WIRE_BESIDE_TENSOR * _fsdp_bytes(benchmark) + 4 * _norm_bytes(benchmark)
    return WIRE * _fsdp_bytes(benchmark) + FEW_BYTES


def _norm_bytes(benchmark: Benchmark, norms: int | None = None) -> float:
    """Of the scales of all norms, or of so many, in all micro-steps."""
    count = 2 * benchmark.model.layers + 1 if norms is None else norms
    return float(count * benchmark.model.hidden_size * compute_bytes(benchmark) * benchmark.gradient_accumulation)


def _norms_along_fsdp(storage: Storage) -> bool:
    return not storage.norm_axes or "fsdp" in storage.norm_axes


def _norms_among_weights(benchmark: Benchmark, storage: Storage) -> list[Cause]:
    """How the scales of norms travel along the axes of the weights, beside two gathers and a scatter of each."""
    share, each = benchmark.parallelism, _norm_bytes(benchmark) / benchmark.parallelism.tensor
    sent = _sent(_weight_group(benchmark))
    if not _norms_along_fsdp(storage):
        summed = 2 * each * sent if share.data == 1 else 0.0
        text = "each device has the scales of norms: their gradients are summed" + (
            "" if summed else ", beside those of data"
        )
        return [Cause(text=text, amount=summed - 3 * each * sent)]
    if share.context > 1 and storage.norm_axes:
        return [Cause(text="norms are shared out over fsdp alone: among the others", amount=-3 * each * sent)]
    last = _norm_bytes(benchmark, norms=1) / share.tensor
    return [Cause(text="the last norm is gathered once for forward and backward", amount=-last * sent)]


def _norms_elsewhere(benchmark: Benchmark, storage: Storage) -> Cause:
    """Those of them that go along other axes than the weights do."""
    share, each = benchmark.parallelism, _norm_bytes(benchmark) / benchmark.parallelism.tensor
    if share.tensor > 1 or _weight_group(benchmark) == 1:
        amount = 0.0  # within the tolerance, or as all weights
    elif not _norms_along_fsdp(storage):
        amount = 2 * each * _sent(_weight_group(benchmark) * share.data) if share.data > 1 else 0.0
    elif share.context > 1 and storage.norm_axes and share.fsdp > 1:
        amount = (3 * each - _norm_bytes(benchmark, norms=1)) * _sent(share.fsdp)
    else:
        amount = 0.0
    return Cause(text="the scales of norms, and their gradients", amount=amount)


# MaxText sums a number for each of its arrays, fp8 the largest values of each matmul's factors and gradient.
NUMBER_BYTES, NUMBERS, NUMBERS_OF_A_LAYER = 8.0, 100, 22


def _sums(benchmark: Benchmark, groups: Iterable[Collective]) -> Cause:
    """All-reduces of one number each, up to as many bytes as so few numbers can have."""
    small = [g for g in groups if g.kind == "all-reduce" and g.buffer_bytes <= NUMBER_BYTES * g.count]
    most = (
        2 * NUMBER_BYTES * (NUMBERS + NUMBERS_OF_A_LAYER * benchmark.model.layers) * benchmark.gradient_accumulation
    )
    return Cause(text="sums of single numbers", amount=min(_wire(small), most))


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


TOKEN_NUMBER_BYTES = 4


def _token_numbers(benchmark: Benchmark, groups: list[Collective]) -> Cause:
    """Which token is where, told to all devices: once for the lookup, and never more than all tokens of the step."""
    amount = _wire(group for group in groups if group.kind == "all-gather" and group.dtype == "s32")
    most = benchmark.tokens_per_step * TOKEN_NUMBER_BYTES * _sent(benchmark.gpus)
    return Cause(text="the numbers of the tokens are gathered for the lookup", amount=min(amount, most))


def _micro_steps(benchmark: Benchmark) -> str:
    count = benchmark.gradient_accumulation
    return f" x {count} micro-steps" if count > 1 else ""


def _fsdp(benchmark: Benchmark, storage: Storage, groups: list[Collective], tolerance: float) -> Line:
    """All weights gathered forward and backward, all gradients scattered."""
    model, per_weight = benchmark.model, compute_bytes(benchmark) * _sent(_weight_group(benchmark))
    per_weight *= benchmark.gradient_accumulation / benchmark.parallelism.tensor
    table = flops.embedding_parameters(model)
    head = 0 if model.tied_embeddings else table
    if multiplies_embedding(benchmark):
        lookup = Cause(text="the embedding is gathered once: its backward needs no table", amount=-table * per_weight)
    elif model.tied_embeddings:
        lookup = Cause(
            text="the table is gathered once, for its rows and as the head: in the line of the lookup",
            amount=-2 * table * per_weight,
        )
    else:
        lookup = Cause(text="the embedding is looked up: in a line of its own", amount=-3 * table * per_weight)
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
            Cause(text="the head is gathered once for forward and backward", amount=-head * per_weight),
            *_norms_among_weights(benchmark, storage),
            _gathered_in_fp8(benchmark),
            _logits_gradient(benchmark, groups),
            _sums(benchmark, groups),
            _token_numbers(benchmark, groups),
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
    return Cause(text="beside a tensor axis, some weights are gathered once more", amount=amount, as_counted=True)


LOGITS_EXACT = 1e-6  # relative: so near its formula is a gather that is taken for this one
LAST_NORM_TIMES = 5  # gathered once, and thrice in float32 for the update; its gradient is not summed, which is twice


def _logits_gradient(benchmark: Benchmark, groups: list[Collective]) -> Cause:
    """With few tokens the gradient of the logits is less than the head: it is gathered, and the head stays.

    The hidden states are then shared out by their numbers, forth and back, and so is the last norm.
    """
    model, n, t = benchmark.model, _weight_group(benchmark), benchmark.parallelism.tensor
    tokens = tokens_per_device(benchmark) * benchmark.gradient_accumulation
    each = compute_bytes(benchmark) * _sent(n)
    logits = n * tokens * model.vocabulary_size / t * each
    gathered = [
        group
        for group in groups
        if (group.kind, group.part, group.in_a_loop) == ("all-gather", "backward", False)
        and abs(group.wire_bytes - logits) <= LOGITS_EXACT * logits
    ]
    states = 0.0 if t > 1 else 2 * tokens * model.hidden_size * each
    states += 0.0 if t > 1 else LAST_NORM_TIMES * model.hidden_size * each
    text = "the logits' gradient is gathered, and the head's hidden states are shared out by their numbers"
    return Cause(text=text, amount=logits + states if gathered else 0.0)


def _data(benchmark: Benchmark, storage: Storage, groups: list[Collective], tolerance: float) -> Line:
    """All gradients of a replica summed over the others."""
    d = benchmark.parallelism.data
    shards = benchmark.parallelism.tensor * _weight_group(benchmark)
    gradients = _weight_bytes(benchmark) / _weight_group(benchmark)
    table = flops.embedding_parameters(benchmark.model) * compute_bytes(benchmark) / shards
    looked_up = 0.0 if multiplies_embedding(benchmark) else -2 * table * _sent(d) * benchmark.gradient_accumulation
    return Line(
        what="gradients over data",
        unit="bytes",
        formula=f"2 P / shards x {compute_bytes(benchmark)} x {d - 1}/{d}{_micro_steps(benchmark)}: an all-reduce",
        expected=2 * gradients * _sent(d) * benchmark.gradient_accumulation,
        counted=_wire(groups),
        tolerance=tolerance,
        causes=causes_of(
            Cause(text="the embedding is looked up: in a line of its own", amount=looked_up),
            _norms_over_data(benchmark, storage),
            _sums(benchmark, groups),
            _token_numbers(benchmark, groups),
        ),
    )


def _norms_over_data(benchmark: Benchmark, storage: Storage) -> Cause:
    """Replicas sum what a device has of the norms' gradients; where each has all, together with those of fsdp."""
    share, shards = benchmark.parallelism, _weight_group(benchmark)
    each = 2 * _norm_bytes(benchmark) * _sent(share.data) / share.tensor
    if shards == 1 or not storage.norm_axes:
        return Cause(text="", amount=0.0)
    if not _norms_along_fsdp(storage):
        return Cause(text="those of norms are summed with those of fsdp: among the others", amount=-each / shards)
    amount = each * (1 / share.fsdp - 1 / shards)
    return Cause(text="norms are shared out over fsdp alone", amount=amount)


# Of a layer's hidden states, forward: gathered before attention and before the MLP, scattered behind each; as often
# backward.
TENSOR_EXCHANGES = 8
BACKWARD_GATHERS = 2
# Query, key, value, gate and up are five matmuls with two inputs.
APART = 3


def _tensor(benchmark: Benchmark, storage: Storage, groups: list[Collective], tolerance: float) -> Line:  # noqa: ARG001
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
                as_counted=True,
            ),
            Cause(text="what is computed again is exchanged again", amount=_wire(again), as_counted=True),
            Cause(text="the embedding, the head and the loss", amount=_wire(outside), as_counted=True),
            Cause(text="norms sum their squares over the group", amount=_wire(sums), as_counted=True),
        ),
    )


def _context(benchmark: Benchmark, storage: Storage, groups: list[Collective], tolerance: float) -> Line:  # noqa: ARG001
    """Plain attention shares a sequence in a way of its own: there is no formula for it to be held against."""
    return Line(
        what="sequences over context",
        unit="bytes",
        formula="none: a fused attention exchanges keys and values, the plain one what its compiler chose",
        expected=0.0,
        counted=_wire(groups),
        tolerance=tolerance,
        causes=causes_of(Cause(text="the plain attention's own exchanges", amount=_wire(groups), as_counted=True)),
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


def _other(benchmark: Benchmark, storage: Storage, groups: list[Collective], tolerance: float) -> Line:
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
            Cause(text="beside a tensor axis, devices swap shares of hidden states", amount=swapped, as_counted=True),
            _norms_elsewhere(benchmark, storage),
            _sums(benchmark, groups),
            _token_numbers(benchmark, groups),
        ),
    )


def _wire(groups: Iterable[Collective]) -> float:
    return sum(group.wire_bytes for group in groups)
