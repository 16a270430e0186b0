"""The schedule of a layer, forward and backward: compute above, collectives below, the exposed part in red. Pure.

Both loops over layers have one time scale. A trip that is longer than the drawing is wide continues in the next row,
like a line of text. Colours are variables of page.css.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor, log10
from typing import Literal, NamedTuple

from markupsafe import Markup, escape

from benchmarks.compilation.breakdown import Span
from benchmarks.compilation.schedule import Operation, Schedule
from benchmarks.pages.drawing import svg_root
from benchmarks.pages.page import Plot
from benchmarks.text import bytes_text, plural, seconds_text
from benchmarks.values import Benchmark

Lane = Literal["compute", "communication", "copies"]
Look = Literal["matmul", "attention", "memory", "hidden", "exposed", "copy"]


class Bar(NamedTuple):
    """An operation; its times are relative to the loop's start."""

    lane: Lane
    look: Look
    start_seconds: float
    seconds: float
    labels: Sequence[str]  # the longest that has room is drawn; none: it needs none
    details: str  # shown where a pointer rests on it
    exposed_seconds: float = 0.0  # at its end
    recomputed: bool = False  # drawn lighter

    @property
    def end_seconds(self) -> float:
        return self.start_seconds + self.seconds


class Trip(NamedTuple):
    """One trip of a loop, drawn under a heading."""

    heading: str
    under: str
    seconds: float
    layers: int
    bars: Sequence[Bar]


# Look -> the variable of its colour, and what it means.
LOOKS: dict[Look, tuple[str, str]] = {
    "matmul": ("--blue", "matmul"),
    "attention": ("--violet", "attention"),
    "memory": ("--warm", "memory-bound kernel"),
    "hidden": ("--good", "collective, hidden"),
    "exposed": ("--bad", "collective, exposed"),
    "copy": ("--muted", "copy"),
}
LIGHTER = 0.3  # of the colour

WIDTH, LEFT, RIGHT = 1000.0, 122.0, 16.0
HEADING, ABOVE, AXIS, BETWEEN = 44.0, 18.0, 34.0, 14.0
LANES: dict[Lane, tuple[float, float]] = {
    "compute": (0.0, 34.0),
    "communication": (40.0, 24.0),
    "copies": (70.0, 10.0),
}
SIZE = 12.0  # of text
# Letters -> their width, as a share of the size; about, since the reader's font is not known.
NARROW_LETTERS, WIDE_LETTERS = set(" .,:-ijlfrt"), set("ABCDEFGHIJKLMNOPQRSTUVWXYZmw")
NARROW_SHARE, WIDE_SHARE, SHARE = 0.36, 0.72, 0.6
TICKS = 110.0  # at least so far apart
SLACK = 0.02  # of a row: so much longer is not worth another one
NARROW = 6.0  # without a label

TITLE = "The schedule of a layer, forward and backward"
SHOWS = "Along modelled time: the compute stream above, collectives below it, the exposed part of each in red."
MODELLED = "Times are modelled from the program and the rates of configs/hardware, and not measured."
SHORT = {
    "all-gather": "AG", "reduce-scatter": "RS", "all-reduce": "AR", "all-to-all": "A2A", "collective-permute": "CP",
}  # fmt: skip
Loops = Mapping[str, Sequence[Span]]  # body -> the spans of one trip
LANE_OF: dict[str, Lane] = {"compute": "compute", "communication": "communication", "side": "copies"}
LOOK_OF: dict[str, Look] = {"matmul": "matmul", "attention": "attention", "collective": "hidden"}
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
    """Return the picture; none if the program has no loop over layers."""
    trips = layer_trips(benchmark, schedule, loops)
    if not trips:
        return []
    svg = draw_trips(name, trips, max(trip.seconds / trip.layers for trip in trips))
    labels = {label for trip in trips for bar in trip.bars for label in bar.labels}
    short_names = ", ".join(f"{short}: {kind}" for kind, short in SHORT.items() if short in labels)
    return [Plot(TITLE, f"{MODELLED} {short_names}", [], svg, wide=True)]


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
            lane=LANE_OF[span.stream],
            look="copy" if span.stream == "side" else LOOK_OF.get(span.operation.what, "memory"),
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


# --- the drawing ----------------------------------------------------------------------------------


def draw_trips(name: str, trips: Sequence[Trip], row_seconds: float) -> Markup:
    """Return the picture; `name` is unique on the page, and a row is `row_seconds` long."""
    scale = (WIDTH - LEFT - RIGHT) / (row_seconds * (1 + SLACK))
    lines: list[str] = []
    y = _legend(lines, [bar for trip in trips for bar in trip.bars])
    for trip in trips:
        y = _trip(lines, trip, row_seconds, scale, y)
    return svg_root(name, TITLE, SHOWS, WIDTH, y - BETWEEN, "".join(lines))


def _legend(lines: list[str], bars: Sequence[Bar]) -> float:
    """Of what is drawn, in as many rows as it takes; where the drawing goes on."""
    drawn = {bar.look for bar in bars if bar.seconds - bar.exposed_seconds > 1e-9}
    drawn |= {"exposed" for bar in bars if bar.exposed_seconds > 0}
    keys = [(look, text, False) for look, (_, text) in LOOKS.items() if look in drawn]
    if any(bar.recomputed for bar in bars):
        keys.insert(1, ("matmul", "recomputed", True))
    x, y = 0.0, 14.0
    for look, text, recomputed in keys:
        wide = 20 + _wide(text) + 26
        if x + wide > WIDTH:
            x, y = 0.0, y + 20
        lines.append(_rect(x, y - 11, 14, 12, look, recomputed))
        lines.append(_text(x + 20, y, text, "--ink"))
        x += wide
    return y + 22


def _trip(lines: list[str], trip: Trip, row_seconds: float, scale: float, y: float) -> float:
    """In as many rows as it takes; where the drawing goes on."""
    lines.append(_text(0, y + 16, trip.heading, "--ink", "font-size:15px;font-weight:630"))
    lines.append(_text(0, y + 35, trip.under, "--muted"))
    y += HEADING
    for number in range(max(1, ceil(trip.seconds / row_seconds - SLACK))):
        start = number * row_seconds
        rest = trip.seconds - start
        end = trip.seconds if rest <= row_seconds * (1 + SLACK) else start + row_seconds
        _row(lines, trip.bars, Window(start, end, scale), y + ABOVE)
        y += ABOVE + _height(trip.bars) + AXIS
    return y + BETWEEN


class Window(NamedTuple):
    """The times that a row shows."""

    start: float
    end: float
    scale: float  # pixels a second

    def x(self, seconds: float) -> float:
        """Within the row."""
        return LEFT + (min(max(seconds, self.start), self.end) - self.start) * self.scale

    def shows(self, bar: Bar) -> bool:
        return bar.start_seconds < self.end and bar.end_seconds > self.start


class Label(NamedTuple):
    """A text above the compute lane, over what it belongs to."""

    middle: float
    text: str
    colour: str
    order: int  # the lowest is placed first


def _height(bars: Sequence[Bar]) -> float:
    return max(
        top + tall for lane, (top, tall) in LANES.items() if lane in {"communication", *(b.lane for b in bars)}
    )


def _row(lines: list[str], bars: Sequence[Bar], window: Window, y: float) -> None:
    height = _height(bars)
    _axis(lines, window, y + height + 6)
    above: list[Label] = []
    for lane, (top, tall) in LANES.items():
        if top > height:
            continue
        lines.append(_text(LEFT - 10, y + top + tall / 2 + 4, lane, "--muted", "text-anchor:end"))
        shown = sorted((bar for bar in bars if bar.lane == lane and window.shows(bar)), key=lambda b: b.start_seconds)
        for bar, following in zip(shown, [*shown[1:], None], strict=False):
            room = window.x(following.start_seconds) if following else WIDTH
            lines.extend(_bar(bar, window, y, room, above))
    lines.extend(_above(above, y))


def _bar(bar: Bar, window: Window, y: float, room: float, above: list[Label]) -> Iterator[str]:
    """A bar and its label: inside, else beside it up to `room`, else left to `above`."""
    top, tall = LANES[bar.lane]
    times = (bar.start_seconds, bar.end_seconds - bar.exposed_seconds, bar.end_seconds)
    left, waits, right = (window.x(seconds) for seconds in times)
    yield f"<g><title>{escape(bar.details)}</title>"
    if waits > left or not bar.exposed_seconds:
        yield _rect(left, y + top, max(waits - left, 0.6), tall, bar.look, bar.recomputed)
    if right > waits:
        yield _rect(waits, y + top, right - waits, tall, "exposed")
        waiting = f'x="{waits:.1f}" y="{y:.1f}" width="{right - waits:.1f}" height="{LANES["compute"][1]:g}"'
        yield f'<rect {waiting} style="fill:var(--bad);fill-opacity:.25"/>'
        if right - waits >= bar.exposed_seconds * window.scale / 2:  # once, where more of it is seen
            above.append(Label((waits + right) / 2, f"waits {seconds_text(bar.exposed_seconds)}", "--bad", 0))
    yield "</g>"
    if not bar.labels or right - left <= NARROW:
        return
    low, high = (left, waits) if waits - left >= right - waits else (waits, right)
    inside = [text for text in bar.labels if _wide(text) + 3 <= high - low]
    beside = [text for text in bar.labels if right + 9 + _wide(text) <= room]
    if bar.lane == "compute" or bar.end_seconds > window.end:
        beside = []
    baseline = y + top + tall / 2 + 4
    if inside and (not beside or len(inside[0]) >= len(beside[0])):
        colour = "--ink" if bar.recomputed else "--paper"
        yield _text((low + high) / 2, baseline, inside[0], colour, "text-anchor:middle")
    elif beside:
        yield _text(right + 5, baseline, beside[0], "--muted")
    elif bar.lane == "compute":
        above.append(Label((left + right) / 2, bar.labels[-1], "--muted", 1 if bar.look == "attention" else 2))


def _above(labels: Iterable[Label], y: float) -> Iterator[str]:
    """Those that do not run into each other."""
    taken: list[tuple[float, float]] = []
    for label in sorted(labels, key=lambda label: (label.order, label.middle)):
        half = _wide(label.text) / 2
        middle = min(max(label.middle, LEFT + half), WIDTH - half)
        if all(middle + half + 6 <= left or right + 6 <= middle - half for left, right in taken):
            taken.append((middle - half, middle + half))
            yield _text(middle, y - 5, label.text, label.colour, "text-anchor:middle")


def _axis(lines: list[str], window: Window, y: float) -> None:
    """Modelled milliseconds since the loop's start."""
    step = _step(TICKS / window.scale * 1e3)
    lines.append(_line(LEFT, y, window.x(window.end), y, "--line"))
    lines.append(_text(LEFT - 10, y + 17, "modelled ms", "--muted", "text-anchor:end"))
    for number in range(ceil(window.start * 1e3 / step - 1e-9), floor(window.end * 1e3 / step + 1e-9) + 1):
        x = window.x(number * step / 1e3)
        lines.append(_line(x, y, x, y + 4, "--muted"))
        lines.append(_text(x, y + 17, f"{number * step:g}", "--muted", "text-anchor:middle"))


def _step(least: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(least))
    return next(many * power for many in (1, 2, 5, 10) if many * power >= least * (1 - 1e-9))


# --- SVG ------------------------------------------------------------------------------------------


def _rect(x: float, y: float, wide: float, tall: float, look: Look, lighter: bool = False) -> str:
    colour = LOOKS[look][0]
    style = f"fill:var({colour})"
    if lighter:
        style += f";fill-opacity:{LIGHTER:g};stroke:var({colour});stroke-width:.8"
    elif wide > NARROW:
        style += ";stroke:var(--paper);stroke-width:.8"
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:g}" style="{style}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="stroke:var({colour})"/>'


def _text(x: float, y: float, text: str, colour: str, style: str = "") -> str:
    look = f"font-size:{SIZE:g}px;fill:var({colour})" + (f";{style}" if style else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" style="{look}">{escape(text)}</text>'


def _wide(text: str) -> float:
    narrow, wide = (sum(one in letters for one in text) for letters in (NARROW_LETTERS, WIDE_LETTERS))
    return SIZE * (NARROW_SHARE * narrow + WIDE_SHARE * wide + SHARE * (len(text) - narrow - wide))
