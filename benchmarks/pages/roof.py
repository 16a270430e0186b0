"""Where a run lies under the roof: its TFLOP/s a device beside the peaks and beside what the forecast's bound allows.

The run's own rate is by the recipe's count, as its first MFU is; the peaks are those of result.json. A bound is the
least time a step can take (forecasting/bounds.py), here as the rate that the same FLOPs would then have.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from benchmarks.measuring.summary import Result
from benchmarks.measuring.utilisation import MIXED, Mfu
from benchmarks.pages.drawing import BLUE, INK, LINE, MUTED, PAPER, Canvas, Plot, Size, plot
from benchmarks.planning.bounds import Bound
from benchmarks.rendering.report import seconds_text

SIZE_WIDTH, ROW_HEIGHT = 420, 40


class Bar(NamedTuple):
    """A rate, and what it is."""

    name: str
    tflops: float
    kind: Literal["run", "bound", "peak"]


def achieved_tflops(result: Result) -> float | None:
    """A device's, counted as the recipe counts; None where no speed is claimed."""
    seconds = result.seconds_per_step.median
    if not seconds or result.model_flops_per_step is None:
        return None
    return result.model_flops_per_step / seconds / result.benchmark.gpus / 1e12


def bound_tflops(result: Result, bound: Bound | None) -> float | None:
    """The rate at which the step would take no longer than its lower bound."""
    if bound is None or not bound.seconds or result.model_flops_per_step is None:
        return None
    return result.model_flops_per_step / bound.seconds / result.benchmark.gpus / 1e12


def bars(result: Result, bound: Bound | None) -> list[Bar]:
    """The run, the bound and the peaks; none without a speed."""
    achieved = achieved_tflops(result)
    if achieved is None:
        return []
    found = [Bar("this run", achieved, "run")]
    if allowed := bound_tflops(result, bound):
        found.append(Bar("at the lower bound of a step", allowed, "bound"))
    first = result.mfu[0].counted_by if result.mfu else ""
    peaks = [entry for entry in result.mfu or [] if entry.counted_by == first and entry.precision_peak != MIXED]
    found += [Bar(f"{m.precision_peak} peak, {m.table}", m.peak_tflops, "peak") for m in peaks]
    return found


def roof_plot(result: Result, bound: Bound | None, name: str) -> Plot | None:
    """None where there is nothing but the run itself to show."""
    rows = bars(result, bound)
    if len(rows) < 2:
        return None
    size = Size(SIZE_WIDTH, ROW_HEIGHT * len(rows) + 58, left=14, right=62, top=8, bottom=50)
    return plot(
        name,
        "Under the roof",
        "A bar for each rate in TFLOP/s a device: the run's, what the lower bound of a step allows, and the peaks.",
        roof_in_words(result, bound),
        lambda canvas: _draw(canvas, rows),
        size,
    )


def _draw(canvas: Canvas, rows: Sequence[Bar]) -> None:
    axes = canvas.axes
    colours = {"run": BLUE, "bound": MUTED, "peak": LINE}
    for place, row in enumerate(rows):
        axes.barh(-place, row.tflops, height=0.34, color=colours[row.kind], zorder=2)
        axes.annotate(
            row.name,
            (0, -place + 0.2),
            xytext=(0, 3),
            textcoords="offset points",
            va="bottom",
            color=INK,
            fontsize=12,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.5},
        )
        axes.annotate(
            _rate_text(row.tflops),
            (row.tflops, -place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize=12,
            annotation_clip=False,
        )
    axes.axvline(rows[0].tflops, color=BLUE, linewidth=1, linestyle=(0, (2, 3)), zorder=1)
    axes.set_xlim(0, max(row.tflops for row in rows))
    axes.set_ylim(-len(rows) + 0.5, 0.75)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_xlabel("TFLOP/s a device")


def _rate_text(tflops: float) -> str:
    return f"{tflops:,.0f}" if tflops >= 1000 else f"{tflops:.4g}"


def roof_in_words(result: Result, bound: Bound | None) -> str:
    """The same as the plot, and why a part of it is missing."""
    achieved = achieved_tflops(result)
    if achieved is None:
        return "No speed is claimed, so the run has no place: " + result.null_because.get(
            "seconds_per_step", "unknown"
        )
    words = [f"The run reaches {_rate_text(achieved)} TFLOP/s a device, counted as the recipe counts."]
    if result.mfu:
        words.append(f"That is {_shares_text(result.mfu)}.")
    else:
        words.append("There is no peak to place it under: " + result.null_because.get("mfu", "unknown") + ".")
    return " ".join([*words, *_bound_in_words(result, bound)])


def _shares_text(entries: Sequence[Mfu]) -> str:
    first = entries[0].counted_by
    return ", ".join(
        f"{m.percent:.1f}% of the {m.precision_peak} peak of {_rate_text(m.peak_tflops)} ({m.table})"
        for m in entries
        if m.counted_by == first and m.precision_peak != MIXED
    )


def _bound_in_words(result: Result, bound: Bound | None) -> list[str]:
    if bound is None:
        return []
    seconds = result.seconds_per_step.median
    if bound.seconds is None or not seconds:
        return ["The lower bound of a step is not known: " + "; ".join(bound.unknown[:1]) + "."]
    left = f" Left out of the bound, as not known: {'; '.join(bound.unknown)}." if bound.unknown else ""
    return [
        f"By the forecast a step takes {seconds_text(bound.seconds)} at the least; "
        f"the run took {seconds / bound.seconds:.2f} times as long.{left}"
    ]
