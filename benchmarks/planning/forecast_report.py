"""A forecast and a ranking of layouts, for people. Pure; lines of text."""

from collections.abc import Sequence

from benchmarks.planning.bounds import Bound
from benchmarks.planning.calibration import MEANING, Estimate
from benchmarks.planning.covered import WITHIN_SERIES, Error, made_so
from benchmarks.planning.forecast import Cost, Forecast, Memory, PlanReport, ScalePoint
from benchmarks.planning.layouts import RankedLayout, Ranking, alike
from benchmarks.rendering.columns import Rows, aligned, columns
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
        [title(benchmark), *aligned(_what(benchmark, report.other_recipes))],
        memory_lines(report.memory),
        forecast_lines(report),
        ["scaling", *scaling_lines(report.scaling)],
        ["cost", *aligned(cost_rows(report.cost, report))],
        *([ranking_lines(report.layouts, benchmark, top)] if report.layouts else []),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts).split("\n")


def _what(benchmark: Benchmark, other_recipes: Sequence[str]) -> Rows:
    share = benchmark.parallelism.short()
    batch = f"MBS{benchmark.micro_batch_size} GBS{benchmark.global_batch_size} GA{benchmark.gradient_accumulation}"
    return [
        ("layout", f"{share} {batch}, {benchmark.sequence_length} tokens a sequence"),
        ("recipe", f"{benchmark.recipe.name} ({benchmark.recipe.source})"),
        *([("others", f"{', '.join(other_recipes)}: --recipe")] if other_recipes else []),
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
    rows: Rows = [("step", f"{seconds_text(estimate.seconds)}{over}"), ("by", estimate.by)]
    for name, seconds in estimate.parts.items():
        share = f" = {estimate.shares[name]:.4g} {MEANING[name]}" if name in estimate.shares else ""
        what = "the matmuls, the bubble and the optimizer of the bound" if name == "floor" else ""
        rows.append((words(name), f"{seconds_text(seconds)}{share}{what and f' = {what}'}"))
    rows.append(("its error", error_text(estimate)))
    if estimate.beyond:
        rows.append(("beyond the rows", "\n".join(estimate.beyond)))
    return rows


def error_text(estimate: Estimate) -> str:
    """Of predictions of its kind, with what a baseline would have had."""
    errors, error = estimate.errors, estimate.error
    if errors is None or error is None:
        return "not known: no rows were predicted from as far away"
    so = f"{errors.series} series, each predicted {made_so(errors.kind)}"
    text = f"median {_pair(error)} worst over {so}"
    if errors.kind not in WITHIN_SERIES:
        text += f"\nthe nearest row would have {_pair(errors.lookup)}, a constant x bound {_pair(errors.constant)}"
    if estimate.interval:
        low, high = map(seconds_text, estimate.interval)
        text += f"\n90% of the series lie within {low} to {high} ({error.covered_percent:.0f}% when left out)"
    return text


def _pair(error: Error) -> str:
    return f"{error.median:.1f}%, {error.worst:.1f}%"


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
    return f"give or take {hours * worst_percent / 100:,.0f} (the worst error of such predictions)"


# --- layouts ------------------------------------------------------------------------------------


def ranking_lines(ranking: Ranking, benchmark: Benchmark, top: int) -> list[str]:
    counted = f"{ranking.tried} tried, {ranking.refused} refused, {ranking.too_large} too large"
    lines = [f"layouts by {ranking.by}, of the same global batch {benchmark.global_batch_size} ({counted})"]
    lines += [f"  {text}" for text in _how_far(ranking)]
    if not ranking.layouts:
        return [*lines, "  none fits: more GPUs (--gpus), or a smaller batch (--set=global_batch_size)"]
    common = _beyond_in_common(ranking)
    for one in ranking.layouts[:top]:
        mark = "   <- as asked" if alike(one, benchmark) else ""
        batch = f"MBS{one.micro_batch_size} GA{one.gradient_accumulation}"
        lines.append(f"  {one.rank}. {one.layout} {batch}: {_time(one)}, {bytes_text(one.bytes_needed)} a GPU{mark}")
        lines += [f"     {_beyond(one, common)}"] if set(one.beyond) - set(common) else []
        lines.append(f"     {command_of(request_of(benchmark, one.settings), 'run.py')}")
    own = next((one for one in ranking.layouts if alike(one, benchmark)), None)
    if own is not None and own.rank > top:
        lines.append(f"  {own.rank}. {own.layout}: {_time(own)}   <- as asked")
    return lines


def _how_far(ranking: Ranking) -> list[str]:
    """What the order is worth."""
    apart = ranking.apart
    if ranking.by != "estimate" or apart is None:
        return []
    unknown = sum(one.worst_percent is None for one in ranking.layouts)
    tied = sum(one.tied for one in ranking.layouts)
    last = "have no known error" if unknown == len(ranking.layouts) else "come last: their error is not known"
    common = _beyond_in_common(ranking)
    return [
        f"by the model, whose comparisons of {apart.pairs} pairs of published layouts of one model were "
        f"{apart.median:.1f}% off in the median, {apart.worst:.1f}% at worst",
        *([f"the first {tied} lie within that {apart.worst:.1f}%: they are tied"] if tied else []),
        *([f"{unknown} of the {len(ranking.layouts)} {last}"] if unknown else []),
        *([f"all are beyond the rows: {'; '.join(common)}"] if common else []),
    ]


def _beyond_in_common(ranking: Ranking) -> list[str]:
    """What the header says once."""
    if ranking.by != "estimate" or ranking.apart is None:
        return []
    return [text for text in ranking.layouts[0].beyond if all(text in one.beyond for one in ranking.layouts)]


def _beyond(one: RankedLayout, common: Sequence[str]) -> str:
    error = "its error is not known" if one.worst_percent is None else f"{one.worst_percent:.1f}% off at worst"
    return f"beyond the rows ({error}): {'; '.join(text for text in one.beyond if text not in common)}"


def _time(one: RankedLayout) -> str:
    bound = f"bound {_dash(one.bound_seconds)}, traffic {_seconds(one.traffic_seconds)}"
    return bound if one.estimate_seconds is None else f"estimate {seconds_text(one.estimate_seconds)}, {bound}"
