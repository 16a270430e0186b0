"""The schedule of a layer, forward and backward: the spans of a trip as bars with names. Pure."""

from collections.abc import Mapping, Sequence

from benchmarks.compilation.breakdown import Span
from benchmarks.compilation.schedule import Operation, Schedule
from benchmarks.pages.page import Plot
from benchmarks.pages.timeline import Bar, Lane, Look, Trip, timeline
from benchmarks.text import bytes_text, plural, seconds_text
from benchmarks.values import Benchmark

HEADING = "The schedule of a layer, forward and backward"
SHOWS = "Along modelled time: the compute stream above, collectives below it, the exposed part of each in red."
MODELLED = "Times are modelled from the program and the rates of configs/hardware, and not measured."
SHORT = {
    "all-gather": "AG", "reduce-scatter": "RS", "all-reduce": "AR", "all-to-all": "A2A", "collective-permute": "CP",
}  # fmt: skip
Loops = Mapping[str, Sequence[Span]]  # body -> the spans of one trip
LANES: dict[str, Lane] = {"compute": "compute", "communication": "communication", "side": "copies"}
LOOKS: dict[str, Look] = {"matmul": "matmul", "attention": "attention", "collective": "hidden"}
LAST_WORDS, LONGEST = 3, 90  # of the path of an operation
QUERY, OUTPUT = "Attention.query_projection", "Attention.out_projection"
MERGED = ("q, k, v projections", "q, k, v", "qkv")
# The framework's layer -> what its matmuls are called, the longest name first.
LAYERS = {
    QUERY: ("q projection", "q"),
    "Attention.kv_projection": ("k, v projection", "k, v"),
    OUTPUT: ("output projection", "output", "out"),
    "MlpBlock": ("MLP",),
}


def schedule_plot(benchmark: Benchmark, schedule: Schedule, loops: Loops, name: str) -> list[Plot]:
    """None where the program has no loop over layers."""
    trips = layer_trips(benchmark, schedule, loops)
    if not trips:
        return []
    row_seconds = max(trip.seconds / trip.layers for trip in trips)
    drawn = timeline(name, HEADING, SHOWS, trips, row_seconds)
    labels = {label for trip in trips for bar in trip.bars for label in bar.labels}
    short_names = ", ".join(f"{short}: {kind}" for kind, short in SHORT.items() if short in labels)
    return [Plot(HEADING, f"{MODELLED} {short_names}", [], drawn, wide=True)]


def layer_trips(benchmark: Benchmark, schedule: Schedule, loops: Loops) -> list[Trip]:
    """A trip of the loop over layers forward, and of the one backward."""
    found = []
    for heading, parts in (("Forward", {"forward"}), ("Backward", {"backward", "recomputed"})):
        loop = _loop(schedule, loops, parts)
        if loop is None:
            continue
        spans = loops[loop.body]
        seconds = max(span.start_seconds + span.seconds for span in spans if span.stream != "side")
        waits = sum(span.exposed_seconds for span in spans)
        layers = max(1, round(benchmark.model.layers / benchmark.parallelism.pipeline / loop.trips))
        exposed = f"{seconds_text(waits)} of it exposed communication" if waits else "all communication hidden"
        under = f"{seconds_text(seconds)} modelled, {exposed}; {plural(loop.trips, 'trip')} a step"
        bars = _bars(spans)
        found.append(Trip(f"{heading}: {plural(layers, 'layer')}", under, seconds, layers, bars))
    return found


def _loop(schedule: Schedule, loops: Loops, parts: set[str]) -> Operation | None:
    """The innermost loop in which these parts take the longest."""
    known = [one for lines in schedule.computations.values() for one in lines if one.body in loops]
    inner = [one for one in known if all(inside.what != "loop" for inside in schedule.computations[one.body])]
    taken = {
        one.body: one.trips
        * sum(s.seconds for s in loops[one.body] if s.stream == "compute" and s.operation.part in parts)
        for one in inner
    }
    longest = max(inner, key=lambda one: taken[one.body], default=None)
    return longest if longest is not None and taken[longest.body] > 0 else None


def _bars(spans: Sequence[Span]) -> list[Bar]:
    output = max((span.operation.flops for span in spans if span.operation.layer == OUTPUT), default=0.0)
    return [
        Bar(
            lane=LANES[span.stream],
            look="copy" if span.stream == "side" else LOOKS.get(span.operation.what, "memory"),
            start_seconds=span.start_seconds,
            seconds=span.seconds,
            labels=_labels(span.operation, output),
            details=_details(span, output),
            exposed_seconds=span.exposed_seconds,
            recomputed=span.operation.part == "recomputed" and span.operation.what in ("matmul", "attention"),
        )
        for span in spans
    ]


def _labels(operation: Operation, output_flops: float) -> Sequence[str]:
    """The longest first. `output_flops` tell whether q stands alone, or k and v are multiplied with it."""
    if operation.what == "attention":
        return ("attention",)
    if operation.what == "collective":
        number, unit = bytes_text(operation.bytes).split()
        size, short = f"{float(number):.3g} {unit}", SHORT.get(operation.kind, operation.kind)
        return (f"{operation.kind} {size}", f"{short} {size}", short)
    if operation.what == "matmul":
        merged = operation.layer == QUERY and operation.flops > 1.01 * output_flops > 0
        return MERGED if merged else LAYERS.get(operation.layer, ())
    return ()


def _details(span: Span, output_flops: float) -> str:
    """What is shown where a pointer rests."""
    operation = span.operation
    path = "/".join(operation.op.split("/")[-LAST_WORDS:])[-LONGEST:]
    name = (*_labels(operation, output_flops), operation.layer, operation.what)[0]
    along = f" along {' and '.join(operation.axes)}" if operation.axes else ""
    exposed = f", {seconds_text(span.exposed_seconds)} of it exposed" if span.exposed_seconds else ""
    amounts = [
        f"{seconds_text(span.seconds)} modelled{exposed}",
        *([f"{operation.flops:.3g} FLOPs in {operation.dtype}"] if operation.flops else []),
        *([bytes_text(operation.bytes)] if operation.bytes else []),
    ]
    title = f"{name or operation.what}{along} ({operation.part})"
    return "\n".join([title, ", ".join(amounts), operation.name, path]).strip()
