"""Renders a forecast and a ranking of layouts as text. No I/O."""

from collections.abc import Sequence

from benchmarks.model import flops
from benchmarks.model.bounds import Bound
from benchmarks.model.estimate import SCALE, Estimate, EstimateError
from benchmarks.model.forecast import Cost, Forecast, Memory, PlanReport, ScalePoint
from benchmarks.model.layouts import CLOSE, RankedLayout, Ranking, is_same_layout
from benchmarks.request.resolve import command_of, request_of
from benchmarks.text import Rows, aligned, bytes_text, columns, count_text, duration_text, seconds_text, title
from benchmarks.values import Benchmark

GB = 1e9
BOUND = "bound (the shortest possible step, at the fastest known matmul rate)"
NEXT_WHERE_TOO_LARGE = "list the layouts that fit with `plan.py layouts`, or use more GPUs"
ESTIMATE = "estimate (the nearest published run, scaled by the bounds)"
MORE = "memory by part, the parts of the bound and more: --verbose"


def words(name: str) -> str:
    return name.replace("_", " ")


# --- one benchmark ------------------------------------------------------------------------------


def report_text(
    benchmark: Benchmark, report: PlanReport, notes: Sequence[str], top: int, *, whole: bool, scales: bool
) -> str:
    """Return the text of launch/plan.py: one screen, or everything if `whole`. `scales`: add scaling to a ranking."""
    share, batch, estimate = benchmark.parallelism.short(), benchmark.batch, report.estimate
    rows = [("layout", f"{share} {batch.short()}, {batch.sequence_length} tokens a sequence")]
    rows += [("recipe", f"{benchmark.recipe.name} ({benchmark.recipe.source})" if whole else benchmark.recipe.name)]
    rows += [("notes", "\n".join(notes))] if notes else []
    parts = [[title(benchmark), *aligned(rows)], expected_lines(benchmark, report)]
    if whole:
        parts += [memory_lines(report.memory), forecast_lines(report)]
    elif not report.layouts and estimate.seconds is not None:
        parts += [[ESTIMATE, *aligned(estimate_rows(estimate, report.bound)[:-1])]]  # expected_lines shows its error
    if whole or scales or not report.layouts:
        parts += [["scaling", *scaling_lines(report.scaling)]]
    parts += [["cost", *aligned(cost_rows(report.cost, report))]]
    parts += [ranking_lines(report.layouts, benchmark, top)] if report.layouts else []
    return "\n\n".join("\n".join(lines) for lines in [*parts, *([] if whole else [[MORE]])])


def expected_lines(benchmark: Benchmark, found: Forecast) -> list[str]:
    """Return the expected step time, throughput, MFU, duration and memory, from the estimate or from the bound."""
    memory = ("Memory", dict(memory_rows(found.memory))["total"])
    if found.seconds is None:
        return ["expected", *aligned([("Step time", f"unknown: {found.estimate.why_none}"), memory])]
    least, most, how, error = "", "", "estimate; its error is unknown", found.estimate.error
    if found.estimate.seconds is None:
        least, most, how = "at least ", "at most ", f"bound; no estimate: {found.estimate.why_none}"
    elif error is not None:
        how = f"estimate; its error: {error.median_percent:g}% median, {error.worst_percent:g}% worst"
    rows: Rows = [("Step time", f"{least}{seconds_text(found.seconds)}   ({how})")]
    if not benchmark.model.uncounted:
        speed = benchmark.tokens_per_step / found.seconds
        each = speed / benchmark.gpus
        rows.append(("Throughput", f"{most}{count_text(speed)} tokens/s   ({count_text(each)} per GPU)"))
        if (peak := benchmark.hardware.peaks.get(benchmark.dtype)) is not None:
            convention, *_ = flops.conventions_for(benchmark.trains, benchmark.model)
            a_token = flops.flops_per_token(benchmark.model, benchmark.batch.sequence_length, convention)
            share = each * a_token / peak.tflops / 1e12
            rows.append(("MFU", f"{most}{share:.1%}   of {peak.tflops:,.5g} TFLOP/s {benchmark.dtype}"))
    span = f"{least}{duration_text(found.seconds * benchmark.steps)}"
    rows.append(("Duration", f"{span} for {benchmark.steps:,} steps, without start-up and compilation"))
    return ["expected", *aligned([*rows, memory])]


def memory_lines(memory: Memory) -> list[str]:
    return ["memory of a device, at the peak of a step", *aligned(memory_rows(memory))]


def memory_rows(memory: Memory) -> Rows:
    rows = [(words(name), bytes_text(size)) for name, size in memory.parts.items() if size]
    if memory.not_counted:
        rows.append(("not counted", ", ".join(memory.not_counted)))
    total = bytes_text(memory.total_bytes)
    if memory.usable_bytes is None or memory.margin_bytes is None:
        whole = bytes_text(memory.total_bytes * memory.devices)
        return [*rows, ("total", f"{total} x {memory.devices} = {whole} of host memory")]
    verdict = "fits" if memory.fits else "DOES NOT FIT"
    room = f"{memory.margin_bytes / GB:+.1f} GB, {memory.margin_percent:+.1f}%"
    rows.append(("total", f"{total} of {bytes_text(memory.usable_bytes)} usable: {verdict} ({room})"))
    return rows if memory.fits else [*rows, ("next", NEXT_WHERE_TOO_LARGE)]


def forecast_lines(found: Forecast) -> list[str]:
    """Return the bound and the estimate as separate blocks; a dry run also shows them."""
    return [BOUND, *bound_lines(found.bound), "", ESTIMATE, *aligned(estimate_rows(found.estimate, found.bound))]


def bound_lines(bound: Bound) -> list[str]:
    table = [("part", "time", "exposed", "")]
    for part in bound.parts:
        table.append(
            (part.name, _seconds(part.seconds), _seconds(part.exposed_seconds), part.unknown or part.formula)
        )
    table.append(("at least", "", _seconds(bound.seconds), _left_out(bound)))
    return columns(table)


def _left_out(bound: Bound) -> str:
    names = [text.partition(":")[0] for text in bound.unknown]
    if bound.seconds is None:
        return "unknown, because the time of the matmuls is unknown"
    return f"without the unknown parts: {', '.join(names)}" if names else ""


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return seconds_text(seconds) if seconds else "0 s"


def estimate_rows(estimate: Estimate, bound: Bound) -> Rows:
    if estimate.seconds is None or estimate.row_seconds is None:
        differs = [("differs", "\n".join(estimate.differs))] if estimate.differs else []
        return [("step", f"no estimate: {estimate.why_none}"), *differs]
    over = f"; {estimate.seconds / bound.seconds:.2f} x the bound" if bound.seconds else ""
    return [
        ("step", f"{seconds_text(estimate.seconds)}{over}"),
        ("row", f"{estimate.row}: {seconds_text(estimate.row_seconds)} ({estimate.source})"),
        ("scaled by", f"{estimate.ratio:.4g}, the ratio of the bounds"),
        ("differs", "\n".join(estimate.differs) or "the row states the same settings"),
        ("error", error_text(estimate.error)),
    ]


def error_text(error: EstimateError | None) -> str:
    """Return the error of such estimates for published rows as text."""
    if error is None:
        return "unknown: no published row has these settings"
    without = "from another scale of its series" if error.kind == SCALE else f"without the rows of its {error.kind}"
    return (
        f"{error.median_percent:g}% in the median, {error.worst_percent:g}% at worst, over {error.rows} published "
        f"rows, each estimated {without}"
    )


def scaling_lines(points: Sequence[ScalePoint]) -> list[str]:
    table: list[tuple[str, ...]] = [
        ("gpus", "batch", "layout", "memory", "bound", "estimate", "tokens/s", "efficiency")
    ]
    for point in points:
        if point.refused:
            table.append((str(point.gpus), "-", point.refused, "-", "-", "-", "-", "-"))
            continue
        memory = {True: "fits", False: "DOES NOT FIT", None: "unknown"}[point.fits]
        speed = "-" if point.tokens_per_second is None else count_text(point.tokens_per_second)
        efficiency = "-" if point.efficiency is None else f"{point.efficiency:.1%}"
        times = [_dash(point.bound_seconds), _dash(point.estimate_seconds)]
        layout = point.layout if point.of_recipe else f"{point.layout} (not the recipe's layout)"
        row = (str(point.gpus), str(point.global_batch_size), layout, memory, *times, speed, efficiency)
        table.append(row)
    basis = next((point.basis for point in points if point.basis), "")
    return [*columns(table), *([f"  tokens/s and efficiency come from the {basis}"] if basis else [])]


def _dash(seconds: float | None) -> str:
    return "-" if seconds is None else seconds_text(seconds)


def cost_rows(cost: Cost | None, found: Forecast) -> Rows:
    if cost is None:
        return [("unknown", "the step time is unknown")]
    least = "at least " if cost.basis == "bound" else ""
    rows: Rows = [
        ("tokens", f"{cost.tokens:,} in {cost.steps:,} steps"),
        ("time", f"{least}{cost.days:,.1f} days (by the {cost.basis})"),
        ("GPU hours", f"{least}{cost.gpu_hours:,.0f}"),
    ]
    if cost.basis == "estimate":
        rows[-1] = ("GPU hours", f"{cost.gpu_hours:,.0f}, {_spread(cost.gpu_hours, found.estimate.error)}")
    if cost.usd is not None:
        rows.append(("cost", f"{least}{cost.usd:,.0f} USD at {cost.price_usd_per_gpu_hour:g} USD per GPU hour"))
    return rows


def _spread(hours: float, error: EstimateError | None) -> str:
    if error is None:
        return "with an unknown error"
    return f"give or take {hours * error.worst_percent / 100:,.0f} (the worst error of such estimates)"


# --- layouts ------------------------------------------------------------------------------------


def ranking_lines(ranking: Ranking, benchmark: Benchmark, top: int) -> list[str]:
    counted = f"{ranking.tried} tried, {ranking.refused} refused, {ranking.too_large} too large"
    lines = [f"layouts with global batch {benchmark.batch.global_batch_size}, sorted by {ranking.by} ({counted})"]
    if not ranking.layouts:
        return [*lines, "  no layout fits: use more GPUs (--gpus) or a smaller batch (--set=global_batch_size)"]
    if ranking.by == "bound":
        lines.append(f"  layouts within {CLOSE:.0%} of the shortest bound are sorted by traffic")
    for one in ranking.layouts[:top]:
        mark = "   <- as requested" if is_same_layout(one, benchmark) else ""
        batch = f"MBS{one.micro_batch_size} GA{one.gradient_accumulation}"
        lines.append(f"  {one.rank}. {one.layout} {batch}: {_time(one)}, {bytes_text(one.bytes_needed)}/GPU{mark}")
        lines.append(f"     {command_of(request_of(benchmark, one.settings), 'run.py')}")
    own = next((one for one in ranking.layouts if is_same_layout(one, benchmark)), None)
    if own is not None and own.rank > top:
        lines.append(f"  {own.rank}. {own.layout}: {_time(own)}   <- as requested")
    return lines


def _time(one: RankedLayout) -> str:
    return f"bound {_seconds(one.really_seconds)}, traffic {_seconds(one.traffic_seconds)}"
