"""What a compiled step sends between devices, beside the formulas, along the axes fsdp and data. Pure."""

from collections.abc import Iterable

from benchmarks.compilation.compiled import Cause, Collective, Compiled, Line, causes_of, multiplies_embedding
from benchmarks.model import flops
from benchmarks.model.capacity import compute_bytes, tokens_per_device
from benchmarks.values import Benchmark, Storage

WIRE, FEW_BYTES = 1e-6, 4096.0  # the tolerance: relative to the weights' traffic, and bytes


def traffic(benchmark: Benchmark, storage: Storage, compiled: Compiled) -> list[Line]:
    """A line for each axis of the layout that exchanges anything, and one for all other collectives.

    None beside a tensor or context axis, for which there are no formulas.
    """
    share = benchmark.parallelism
    if share.tensor * share.context > 1:
        return []
    # By the formulas alone: what a program sends too much must not widen it.
    tolerance = WIRE * _fsdp_bytes(benchmark) + FEW_BYTES
    looked_up = [] if multiplies_embedding(benchmark) else [g for g in compiled.collectives if g.what == "embedding"]
    lines, left = [], [group for group in compiled.collectives if group not in looked_up]
    for axis, line in (("fsdp", _fsdp), ("data", _data)):
        if getattr(share, axis) > 1:
            mine = [group for group in left if group.axes == [axis]]
            left = [group for group in left if group not in mine]
            lines.append(line(benchmark, storage, mine, tolerance))
    if not multiplies_embedding(benchmark):
        lines.append(_lookup(benchmark, looked_up, tolerance))
    return [*lines, _other(benchmark, storage, left, tolerance)]


def _norm_bytes(benchmark: Benchmark, norms: int | None = None) -> float:
    """Of the scales of all norms, or of so many, in all micro-steps."""
    count = 2 * benchmark.model.layers + 1 if norms is None else norms
    return float(count * benchmark.model.hidden_size * compute_bytes(benchmark) * benchmark.gradient_accumulation)


def _norms_along_fsdp(storage: Storage) -> bool:
    return not storage.norm_axes or "fsdp" in storage.norm_axes


def _norms_among_weights(benchmark: Benchmark, storage: Storage) -> Cause:
    """How the scales of norms travel along the axis of the weights, beside two gathers and a scatter of each."""
    share, each, sent = benchmark.parallelism, _norm_bytes(benchmark), _sent(benchmark.parallelism.fsdp)
    if _norms_along_fsdp(storage):
        last = _norm_bytes(benchmark, norms=1)
        return Cause(text="the last norm is gathered once for forward and backward", amount=-last * sent)
    summed = 2 * each * sent if share.data == 1 else 0.0
    text = "each device has the scales of norms: their gradients are summed" + (
        "" if summed else ", beside those of data"
    )
    return Cause(text=text, amount=summed - 3 * each * sent)


def _norms_elsewhere(benchmark: Benchmark, storage: Storage) -> Cause:
    """Those of them that go along other axes than the weights do."""
    share = benchmark.parallelism
    apart = share.fsdp > 1 and share.data > 1 and not _norms_along_fsdp(storage)
    amount = 2 * _norm_bytes(benchmark) * _sent(share.fsdp * share.data) if apart else 0.0
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


def _weight_bytes(benchmark: Benchmark) -> float:
    """All weights in the type they are multiplied in."""
    return float(flops.parameter_count(benchmark.model) * compute_bytes(benchmark))


def _sent(size: int) -> float:
    """The share of a buffer that a device sends when a ring gathers or scatters it."""
    return (size - 1) / size


def _fsdp_bytes(benchmark: Benchmark) -> float:
    """Of all micro-steps: each gathers all weights anew, and adds its gradients up by itself."""
    return 3 * _weight_bytes(benchmark) * _sent(benchmark.parallelism.fsdp) * benchmark.gradient_accumulation


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
    model, per_weight = benchmark.model, compute_bytes(benchmark) * _sent(benchmark.parallelism.fsdp)
    per_weight *= benchmark.gradient_accumulation
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
    n = benchmark.parallelism.fsdp
    return Line(
        what="weights and gradients over fsdp",
        unit="bytes",
        formula=f"3 P x {compute_bytes(benchmark)} x {n - 1}/{n}{_micro_steps(benchmark)}: two gathers and a scatter",
        expected=_fsdp_bytes(benchmark),
        counted=_wire(groups),
        tolerance=tolerance,
        causes=causes_of(
            lookup,
            Cause(text="the head is gathered once for forward and backward", amount=-head * per_weight),
            _norms_among_weights(benchmark, storage),
            _gathered_in_fp8(benchmark),
            _sums(benchmark, groups),
            _token_numbers(benchmark, groups),
        ),
    )


def _gathered_in_fp8(benchmark: Benchmark) -> Cause:
    """A layer's matrices are made fp8 where they lie, and travel so."""
    saved = compute_bytes(benchmark) - 1 if benchmark.dtype == "fp8" else 0
    matrices = benchmark.model.layers * flops.layer_matmul_weights(benchmark.model)
    amount = -2 * matrices * saved * _sent(benchmark.parallelism.fsdp) * benchmark.gradient_accumulation
    return Cause(text="matrices of layers are gathered in fp8: one byte for two", amount=amount)


def _data(benchmark: Benchmark, storage: Storage, groups: list[Collective], tolerance: float) -> Line:
    """All gradients of a replica summed over the others."""
    d = benchmark.parallelism.data
    shards = benchmark.parallelism.fsdp
    gradients = _weight_bytes(benchmark) / benchmark.parallelism.fsdp
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
    share = benchmark.parallelism
    apart = share.fsdp > 1 and storage.norm_axes and not _norms_along_fsdp(storage)
    amount = -2 * _norm_bytes(benchmark) * _sent(share.data) / share.fsdp if apart else 0.0
    return Cause(text="those of norms are summed with those of fsdp: among the others", amount=amount)


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
    return Line(
        what="other collectives",
        unit="bytes",
        formula="none: sums of numbers",
        expected=0.0,
        counted=_wire(groups),
        tolerance=tolerance,
        causes=causes_of(
            _norms_elsewhere(benchmark, storage),
            _sums(benchmark, groups),
            _token_numbers(benchmark, groups),
        ),
    )


def _wire(groups: Iterable[Collective]) -> float:
    return sum(group.wire_bytes for group in groups)
