"""Draw the schedule of a layer, forward and backward: compute above, collectives below, exposed time in red. No I/O.

Each row shows one iteration (trip) of a loop over layers. All rows have the same time scale.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.compilation.breakdown import Span
from benchmarks.compilation.compiled import Operation, Schedule
from benchmarks.pages.drawing import BAD, BLUE, GOOD, INK, MUTED, PAPER, VIOLET, WARM, WIDE, Margins, plot
from benchmarks.pages.page import Plot
from benchmarks.text import bytes_text, plural, seconds_text
from benchmarks.values import Benchmark

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Loops = Mapping[str, Sequence[Span]]  # body of a loop -> the spans of one trip


class Trip(NamedTuple):
    """One iteration of a loop over layers."""

    heading: str
    under: str
    seconds: float
    spans: Sequence[Span]


TITLE = "The schedule of a layer, forward and backward"
MODELLED = "Times are modelled from the program and the rates of configs/hardware, and not measured."
SHORT = {
    "all-gather": "AG", "reduce-scatter": "RS", "all-reduce": "AR", "all-to-all": "A2A", "collective-permute": "CP",
}  # fmt: skip
QUERY, OUTPUT = "Attention.query_projection", "Attention.out_projection"
# A layer of the framework -> the label of its matmuls.
LAYERS = {QUERY: "q", "Attention.kv_projection": "k, v", OUTPUT: "out", "MlpBlock": "MLP"}
COLOURS = {
    "matmul": BLUE,
    "attention": VIOLET,
    "memory-bound kernel": WARM,
    "collective, hidden": GOOD,
    "collective, exposed": BAD,
    "copy": MUTED,
}
RECOMPUTED = 0.3  # the opacity of recomputed work
LANES = {"compute": (22.0, 34.0), "communication": (62.0, 20.0), "side": (106.0, 8.0)}  # top, height
HEADING, ROW = 46.0, 172.0  # in pixels
MARGINS = Margins(left=122, right=16, top=30, bottom=48)
LETTER = 8.6  # the approximate width of a letter in pixels; the reader's font is unknown


def schedule_plot(benchmark: Benchmark, schedule: Schedule, loops: Loops, name: str) -> list[Plot]:
    """Return the plot; an empty list if the program has no loop over layers."""
    trips = layer_trips(benchmark, schedule, loops)
    if not trips:
        return []
    kinds = {span.operation.kind for trip in trips for span in trip.spans if span.operation.what == "collective"}
    short_names = ", ".join(f"{short}: {kind}" for kind, short in SHORT.items() if kind in kinds)
    height = round(ROW * len(trips)) + MARGINS.top + MARGINS.bottom
    says = f"{MODELLED} {short_names}"
    return [plot(name, TITLE, says, lambda axes: _draw(axes, trips), height, MARGINS, width=WIDE)]


def layer_trips(benchmark: Benchmark, schedule: Schedule, loops: Loops) -> list[Trip]:
    """Return one trip of the forward loop over layers and one trip of the backward loop, if they exist."""
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
        under = f"{seconds_text(seconds)} modelled, {exposed}; {plural(loop.trips, 'trip')} per step"
        found.append(Trip(f"{heading}: {plural(layers, 'layer')}", under, seconds, spans))
    return found


def _loop(schedule: Schedule, loops: Loops, parts: set[str]) -> Operation | None:
    """Return the innermost loop that spends the most time on these parts of a step, or None."""
    known = [one for lines in schedule.computations.values() for one in lines if one.body in loops]
    inner = [one for one in known if all(inside.what != "loop" for inside in schedule.computations[one.body])]
    taken = {
        one.body: one.trips
        * sum(s.seconds for s in loops[one.body] if s.stream == "compute" and s.operation.part in parts)
        for one in inner
    }
    longest = max(inner, key=lambda one: taken[one.body], default=None)
    return longest if longest is not None and taken[longest.body] > 0 else None


def label_of(operation: Operation, output_flops: float) -> str:
    """Return an operation's label, or "". A q matmul with more than `output_flops` FLOPs also computes k and v."""
    if operation.what == "collective":
        number, unit = bytes_text(operation.bytes).split()
        return f"{SHORT.get(operation.kind, operation.kind)} {float(number):.3g} {unit}"
    if operation.what == "matmul":
        merged = operation.layer == QUERY and operation.flops > 1.01 * output_flops > 0
        return "qkv" if merged else LAYERS.get(operation.layer, "")
    return "attention" if operation.what == "attention" else ""


# --- the drawing ----------------------------------------------------------------------------------


def _draw(axes: "Axes", trips: Sequence[Trip]) -> None:
    """Draw the trips. The vertical axis is in pixels, the horizontal axis in modelled milliseconds."""
    from matplotlib.patches import Patch

    longest = max(trip.seconds for trip in trips) * 1e3
    pixels = (WIDE - MARGINS.left - MARGINS.right) / longest  # per millisecond
    axes.set_xlim(0, longest)
    axes.set_ylim(ROW * len(trips), 0)
    ticks: dict[float, str] = {}
    for place, trip in enumerate(trips):
        top = place * ROW + HEADING
        corner = (-MARGINS.left / pixels, top - 14)
        axes.annotate(trip.heading, corner, fontsize=15, fontweight="bold", annotation_clip=False)
        axes.annotate(trip.under, corner, (0, -16), textcoords="offset points", color=MUTED, annotation_clip=False)
        ticks |= {top + low + tall / 2: "copies" if lane == "side" else lane for lane, (low, tall) in LANES.items()}
        _draw_trip(axes, trip, top, pixels)
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.set_xlabel("modelled milliseconds")
    keys = [Patch(facecolor=colour, label=text) for text, colour in COLOURS.items()]
    keys.insert(1, Patch(facecolor=BLUE, alpha=RECOMPUTED, label="recomputed"))
    left = -MARGINS.left / (WIDE - MARGINS.left - MARGINS.right)
    legend = axes.legend(handles=keys, ncols=len(keys), frameon=False, handlelength=1.2, columnspacing=1.3)
    legend.set_loc("lower left")
    legend.set_bbox_to_anchor((left, 1.0))


def _draw_trip(axes: "Axes", trip: Trip, top: float, pixels: float) -> None:
    output = max((span.operation.flops for span in trip.spans if span.operation.layer == OUTPUT), default=0.0)
    for lane, (low, tall) in LANES.items():
        spans = sorted((span for span in trip.spans if span.stream == lane), key=lambda span: span.start_seconds)
        ends = [*(span.start_seconds for span in spans[1:]), trip.seconds]
        for span, following in zip(spans, ends, strict=False):
            start, wide, exposed = (
                1e3 * seconds for seconds in (span.start_seconds, span.seconds, span.exposed_seconds)
            )
            recomputed = span.operation.part == "recomputed" and span.operation.what in ("matmul", "attention")
            middle = top + low + tall / 2
            axes.barh(
                middle, wide, tall, start, color=_colour(span), alpha=RECOMPUTED if recomputed else 1.0,
                edgecolor=PAPER, linewidth=0.8 if wide * pixels > 6 else 0.0,
            )  # fmt: skip
            if exposed:
                axes.barh(middle, exposed, tall, start + wide - exposed, color=BAD)
                axes.barh(top + 39, exposed, 34, start + wide - exposed, color=BAD, alpha=0.25)
            label = label_of(span.operation, output)
            if lane == "communication":
                if LETTER * len(label) > (1e3 * following - start) * pixels:
                    label = label.partition(" ")[0]  # drop the size
                axes.text(start, middle + tall, label, color=MUTED, va="center")
            elif lane == "compute" and LETTER * len(label) <= wide * pixels:
                colour = INK if recomputed else PAPER
                axes.text(start + wide / 2, middle, label, color=colour, ha="center", va="center")


def _colour(span: Span) -> str:
    if span.stream == "side":
        return COLOURS["copy"]
    what = "collective, hidden" if span.operation.what == "collective" else span.operation.what
    return COLOURS.get(what, WARM)
