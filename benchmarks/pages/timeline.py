"""The schedule of loops as a timeline: compute above, communication below, the exposed part in red. Pure.

All loops have one time scale. A loop that is longer than the drawing is wide goes on in the next row, like a line of
text. Colours are variables of page.css; `standalone` brings them along for a file of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Literal, NamedTuple

from benchmarks.pages.page import HERE
from benchmarks.text import seconds_text

if TYPE_CHECKING:
    from markupsafe import Markup

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
RECOMPUTED = "recomputed"
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


def timeline(name: str, heading: str, shows: str, trips: Sequence[Trip], row_seconds: float) -> "Markup":
    """`name` is its own on the page, `shows` what is to be seen; a row is `row_seconds` long."""
    from markupsafe import Markup, escape

    scale = (WIDTH - LEFT - RIGHT) / (row_seconds * (1 + SLACK))
    lines: list[str] = []
    y = _legend(lines, [bar for trip in trips for bar in trip.bars])
    for trip in trips:
        y = _trip(lines, trip, row_seconds, scale, y)
    y -= BETWEEN
    head = (
        f'<svg class="drawing" role="img" viewBox="0 0 {WIDTH:g} {y:g}" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(heading)}</title><desc id="{name}-desc">{escape(shows)}</desc>'
    )
    return Markup(head + "".join(lines) + "</svg>")


def standalone(drawing: "Markup", margin: float = 16.0) -> str:
    """A file of its own: it brings its colours for light and dark, and paper to lie on."""
    svg = str(drawing)
    css = (HERE / "page.css").read_text(encoding="utf-8")
    palette = css[css.index(":root {") : css.index("*, *::before")]
    width, height = (float(number) for number in svg.split('viewBox="0 0 ')[1].split('"', maxsplit=1)[0].split())
    box = f"{-margin:g} {-margin:g} {width + 2 * margin:g} {height + 2 * margin:g}"
    paper = f'<rect x="{-margin:g}" y="{-margin:g}" width="100%" height="100%" rx="8" style="fill:var(--paper)"/>'
    style = f"<style>{palette}text {{ font-family: var(--sans); }}</style>"
    opened = svg.replace('<svg class="drawing"', '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    head, rest = opened.replace(f"0 0 {width:g} {height:g}", box, 1).split("</desc>", 1)
    return f"{head}</desc>{style}{paper}{rest}\n"


# --- parts of the drawing -------------------------------------------------------------------------


def _legend(lines: list[str], bars: Sequence[Bar]) -> float:
    """Of what is drawn, in as many rows as it takes; where the drawing goes on."""
    drawn = {bar.look for bar in bars if bar.seconds - bar.exposed_seconds > 1e-9}
    drawn |= {"exposed" for bar in bars if bar.exposed_seconds > 0}
    keys = [(look, text, False) for look, (_, text) in LOOKS.items() if look in drawn]
    if any(bar.recomputed for bar in bars):
        keys.insert(1, ("matmul", RECOMPUTED, True))
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
    yield f"<g>{_title(bar.details)}"
    if waits > left or not bar.exposed_seconds:
        yield _rect(left, y + top, max(waits - left, 0.6), tall, bar.look, bar.recomputed)
    if right > waits:
        yield _rect(waits, y + top, right - waits, tall, "exposed")
        yield _wash(waits, y, right - waits, LANES["compute"][1])
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


def _wash(x: float, y: float, wide: float, tall: float) -> str:
    """While compute waits."""
    style = "fill:var(--bad);fill-opacity:.25"
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:g}" style="{style}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="stroke:var({colour})"/>'


def _text(x: float, y: float, text: str, colour: str, style: str = "") -> str:
    from markupsafe import escape

    look = f"font-size:{SIZE:g}px;fill:var({colour})" + (f";{style}" if style else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" style="{look}">{escape(text)}</text>'


def _title(text: str) -> str:
    from markupsafe import escape

    return f"<title>{escape(text)}</title>"


def _wide(text: str) -> float:
    narrow, wide = (sum(one in letters for one in text) for letters in (NARROW_LETTERS, WIDE_LETTERS))
    return SIZE * (NARROW_SHARE * narrow + WIDE_SHARE * wide + SHARE * (len(text) - narrow - wide))
