"""A forecast, a ranking of layouts and a calibration, for people. Pure; lines of text."""

from collections.abc import Sequence

from benchmarks.planning.bounds import Bound
from benchmarks.planning.calibration import MEANING, Calibration, Estimate, Judged
from benchmarks.planning.covered import Errors, Fit
from benchmarks.planning.forecast import Cost, Forecast, Memory, PlanReport, ScalePoint
from benchmarks.planning.layouts import RankedLayout, Ranking, alike
from benchmarks.rendering.columns import Rows, aligned, columns, percent_text
from benchmarks.rendering.report import bytes_text, count_text, seconds_text, title
from benchmarks.request.resolve import command_of, request_of
from benchmarks.values import Benchmark

GB = 1e9
BOUND = "bound (the least, at the fastest matmul rate known)"
NEXT_WHERE_TOO_LARGE = "`plan.py layouts` ranks the layouts that fit; or more GPUs by --gpus"
ESTIMATE = "estimate (calibrated on published runs)"


def words(name: str) -> str:
    return name.replace("_", " ")


# --- one benchmark ------------------------------------------------------------------------------


def plan_lines(benchmark: Benchmark, report: PlanReport, top: int) -> list[str]:
    """All that launch/plan.py shows of one benchmark."""
    parts = [
        [title(benchmark), *aligned(_what(benchmark))],
        memory_lines(report.memory),
        forecast_lines(report),
        ["scaling", *scaling_lines(report.scaling)],
        ["cost", *aligned(cost_rows(report.cost, report))],
        *([ranking_lines(report.layouts, benchmark, top)] if report.layouts else []),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts).split("\n")


def _what(benchmark: Benchmark) -> Rows:
    share = benchmark.parallelism.short()
    batch = f"MBS{benchmark.micro_batch_size} GBS{benchmark.global_batch_size} GA{benchmark.gradient_accumulation}"
    return [
        ("layout", f"{share} {batch}, {benchmark.sequence_length} tokens a sequence"),
        ("recipe", f"{benchmark.recipe.name} ({benchmark.recipe.source})"),
    ]


def memory_lines(memory: Memory) -> list[str]:
    return ["memory of a device, at the peak of a step", *aligned(memory_rows(memory))]


def memory_rows(memory: Memory) -> Rows:
    rows = [(words(name), bytes_text(size)) for name, size in memory.parts.items() if size]
    if memory.not_counted:
        rows.append(("not counted", ", ".join(memory.not_counted)))
    total = bytes_text(memory.total_bytes)
    if memory.usable_bytes is None or memory.margin_bytes is None:
        whole = bytes_text(memory.total_bytes * memory.devices)
        return [*rows, ("total", f"{total} x {memory.devices} = {whole}, of what the host has")]
    verdict = "fits" if memory.fits else "DOES NOT FIT"
    room = f"{memory.margin_bytes / GB:+.1f} GB, {memory.margin_percent:+.1f}%"
    rows.append(("total", f"{total} of {bytes_text(memory.usable_bytes)} usable: {verdict} ({room})"))
    return rows if memory.fits else [*rows, ("next", NEXT_WHERE_TOO_LARGE)]


def forecast_lines(found: Forecast) -> list[str]:
    """The bound and, apart from it, the estimate; a dry run shows these too."""
    return [BOUND, *bound_lines(found.bound), "", ESTIMATE, *aligned(estimate_rows(found.estimate, found.bound))]


def bound_lines(bound: Bound) -> list[str]:
    table = [("part", "takes", "shows", "")]
    for part in bound.parts:
        table.append(
            (part.name, _seconds(part.seconds), _seconds(part.exposed_seconds), part.unknown or part.formula)
        )
    table.append(("at least", "", _seconds(bound.seconds), _left_out(bound)))
    return columns(table)


def _left_out(bound: Bound) -> str:
    names = [text.partition(":")[0] for text in bound.unknown]
    if bound.seconds is None:
        return "not known, without the matmuls"
    return f"without what is not known: {', '.join(names)}" if names else ""


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return seconds_text(seconds) if seconds else "0 s"


def estimate_rows(estimate: Estimate, bound: Bound) -> Rows:
    if estimate.seconds is None:
        return [("step", f"no estimate: {estimate.why_none}")]
    over = f"; {estimate.seconds / bound.seconds:.2f} x the bound" if bound.seconds else ""
    rows: Rows = [("step", f"{seconds_text(estimate.seconds)}{over}, by the published runs of {estimate.family}")]
    for name, seconds in estimate.parts.items():
        share = f" = {estimate.shares[name]:.4g} {MEANING[name]}" if name in estimate.shares else ""
        what = "the matmuls, the bubble and the optimizer of the bound" if name == "floor" else ""
        rows.append((words(name), f"{seconds_text(seconds)}{share}{what and f' = {what}'}"))
    errors = estimate.errors
    if errors is not None:
        text = f"median {errors.median:.1f}%, worst {errors.worst:.1f}% over {errors.rows} rows, each left out"
        for what, median, worst in (
            ("of a model", errors.model_left_out_median, errors.model_left_out_worst),
            ("in a layout", errors.layout_left_out_median, errors.layout_left_out_worst),
        ):
            text += "" if median is None else f"; {what} that no row has {median:.1f}%, worst {worst:.1f}%"
        rows.append(("errors of rows", text))
    far = "not known" + (": it goes beyond the rows in more than was judged" if estimate.beyond else "")
    near = f"{estimate.worst_percent or 0:.1f}% at worst, as far as rows were off that were as unlike the others"
    rows.append(("its error", far if estimate.worst_percent is None else near))
    if estimate.beyond:
        rows.append(("beyond them", "\n".join(estimate.beyond)))
    return rows


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
        layout = point.layout if point.of_recipe else f"{point.layout} (not the recipe's)"
        row = (str(point.gpus), str(point.global_batch_size), layout, memory, *times, speed, efficiency)
        table.append(row)
    basis = next((point.basis for point in points if point.basis), "")
    return [*columns(table), *([f"  tokens/s and efficiency are by the {basis}"] if basis else [])]


def _dash(seconds: float | None) -> str:
    return "-" if seconds is None else seconds_text(seconds)


def cost_rows(cost: Cost | None, found: Forecast) -> Rows:
    if cost is None:
        return [("unknown", "no time of a step is known")]
    least = "at least " if cost.basis == "bound" else ""
    rows: Rows = [
        ("tokens", f"{cost.tokens:,} in {cost.steps:,} steps"),
        ("time", f"{least}{cost.days:,.1f} days (by the {cost.basis})"),
        ("GPU hours", f"{least}{cost.gpu_hours:,.0f}"),
    ]
    if cost.basis == "estimate":
        rows[-1] = ("GPU hours", f"{cost.gpu_hours:,.0f}, {_spread(cost.gpu_hours, found.estimate.worst_percent)}")
    if cost.usd is not None:
        rows.append(("cost", f"{least}{cost.usd:,.0f} USD at {cost.price_usd_per_gpu_hour:g} USD a GPU hour"))
    return rows


def _spread(hours: float, worst_percent: float | None) -> str:
    if worst_percent is None:
        return "and the error of that is not known here"
    return f"give or take {hours * worst_percent / 100:,.0f} (the worst error of such estimates)"


# --- layouts ------------------------------------------------------------------------------------


def ranking_lines(ranking: Ranking, benchmark: Benchmark, top: int) -> list[str]:
    counted = f"{ranking.tried} tried, {ranking.refused} refused, {ranking.too_large} too large"
    lines = [f"layouts by {ranking.by}, of the same global batch {benchmark.global_batch_size} ({counted})"]
    lines += [f"  {text}" for text in _how_far(ranking)]
    if not ranking.layouts:
        return [*lines, "  none fits: more GPUs (--gpus), or a smaller batch (--set=global_batch_size)"]
    for one in ranking.layouts[:top]:
        mark = "   <- as asked" if alike(one, benchmark) else ""
        batch = f"MBS{one.micro_batch_size} GA{one.gradient_accumulation}"
        lines.append(f"  {one.rank}. {one.layout} {batch}: {_time(one)}, {bytes_text(one.bytes_needed)} a GPU{mark}")
        lines += [f"     {_beyond(one)}"] if one.beyond else []
        lines.append(f"     {command_of(request_of(benchmark, one.settings), 'run.py')}")
    own = next((one for one in ranking.layouts if alike(one, benchmark)), None)
    if own is not None and own.rank > top:
        lines.append(f"  {own.rank}. {own.layout}: {_time(own)}   <- as asked")
    return lines


def _how_far(ranking: Ranking) -> list[str]:
    """What the order is worth."""
    if ranking.by == "traffic":
        return [
            "estimates cannot tell these layouts apart: the published runs are in one kind of layout",
            "they are in the order of their bounds with what the framework really moves, then of all that they move",
        ]
    errors = ranking.errors
    if errors is None or errors.layout_left_out_median is None:
        return []
    return [
        f"estimates in a layout that no row has are off by {errors.layout_left_out_median:.1f}% in the median and "
        f"{errors.layout_left_out_worst:.1f}% at worst: what is closer is as good as the same"
    ]


def _beyond(one: RankedLayout) -> str:
    error = "its error is not known" if one.worst_percent is None else f"{one.worst_percent:.1f}% off at worst"
    return f"beyond the rows ({error}): {'; '.join(one.beyond)}"


def _time(one: RankedLayout) -> str:
    bound = f"bound {_dash(one.bound_seconds)}, traffic {_seconds(one.traffic_seconds)}"
    return bound if one.estimate_seconds is None else f"estimate {seconds_text(one.estimate_seconds)}, {bound}"


# --- calibration --------------------------------------------------------------------------------


def calibration_lines(judged: Sequence[Judged], calibration: Calibration) -> list[str]:
    """Every published row beside the estimate of a fit that has not seen it, and the errors by family."""
    lines = [
        "each row is estimated by a fit that has seen neither it nor its twins (the same run, published again)",
        "model left out: by a fit that has seen no row of its model; layout left out: none in its kind of layout",
        "",
    ]
    for family in calibration.families:
        rows = [one for one in judged if one.family == family.name]
        lines += [f"{family.name}: {family.reason}", *columns([HEADINGS, *map(_judged_row, rows)]), ""]
    lines += ["shares that are fitted"]
    lines += columns([("family", *map(words, MEANING)), *map(_shares_row, calibration.fits)])
    lines += aligned([(words(name), meaning) for name, meaning in MEANING.items()])
    lines += ["", "error by leaving out, percent of the published time"]
    names = Errors.__struct_fields__
    table: list[tuple[str, ...]] = [("family", "precision", *map(words, names))]
    for fit in calibration.fits:
        for dtype, errors in fit.errors.items():
            percents = (percent_text(getattr(errors, name), ".2f") for name in names if name != "rows")
            table.append((fit.family, dtype, str(errors.rows), *percents))
    lines += columns(table)
    return lines


HEADINGS = (
    "", "layout", "published", "bound", "estimate", "error %", "model left out %", "layout left out %", "twins",
)  # fmt: skip


def _judged_row(one: Judged) -> tuple[str, ...]:
    return (
        one.name,
        one.layout,
        f"{one.seconds:g} s",
        f"{one.bound_seconds:.3f} s",
        "none" if one.estimate_seconds is None else f"{one.estimate_seconds:.3f} s",
        _signed(one.error_percent),
        _signed(one.model_left_out_percent),
        _signed(one.layout_left_out_percent),
        str(one.twins),
    )


def _signed(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:+.2f}"


def _shares_row(fit: Fit) -> tuple[str, ...]:
    return (fit.family, *(f"{fit.shares[name]:.4g}" for name in MEANING))
