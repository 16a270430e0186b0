"""A TraceReport as text for people, as wide as their terminal. Pure."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.logs.log_endings import printable
from benchmarks.rendering.columns import Rows, aligned, columns
from benchmarks.rendering.report import bytes_text, count_text, seconds_text
from benchmarks.trace.clock import Comparison
from benchmarks.trace.kinds import IDLE, KINDS
from benchmarks.trace.nccl import NcclCalls
from benchmarks.trace.report import ToOpen, TraceFile, TraceReport, hidden_share
from benchmarks.trace.summary import DeviceTimes, StepWindow, TopOperation

MOST_ROWS = 16
MOST_PATHS = 4
MOST_CALLS = 32
NARROWEST = 40
NAME_WIDTH = 14  # of a host: the table fits 80 columns then
COLUMNS = (*KINDS, IDLE)
TITLES = {"copy": "copies"}
ALL_OF_THEM = "(--format=json has all)"
Table = list[tuple[str, ...]]

HOW_TO_READ = (
    "Every moment belongs to one kind: to compute (matmul, attention, other) where any",
    "operation computes, else to collectives, else to copies; so the parts add up to the",
    "step. Collectives hold the wait for the slowest device.",
)


def report_text(report: TraceReport, width: int) -> str:
    """Everything: what was read, where a step goes, the top operations, NCCL's calls, and what opens the files."""
    parts = [[report.title, *aligned(_rows(report))]]
    if report.mean is not None:
        parts.append(_times_part(report, report.mean))
        parts.append([f"  {line}" for line in (*_communication(report.mean), *HOW_TO_READ)])
    for summary in report.summaries[:1]:
        whose = f" of {printable(summary.host)}" if len(report.summaries) > 1 else ""
        parts.append([f"top operations{whose}, a step and device", *_operations(summary.operations, width)])
    if report.nccl is not None:
        parts.append(_nccl_part(report.nccl, width))
    if report.to_open:
        parts.append(["to open", *aligned([(one.what, _to_open_text(one)) for one in report.to_open])])
    return "\n\n".join("\n".join(part) for part in parts)


def _rows(report: TraceReport) -> Rows:
    rows: Rows = (
        [("BEWARE", printable(report.comparison.doubt))] if report.comparison and report.comparison.doubt else []
    )
    if report.files:
        files = [_file_text(file, report.place) for file in report.files[:MOST_ROWS]]
        files += _more(len(report.files) - MOST_ROWS, "files")
        rows.append(("traces" if len(report.files) > 1 else "trace", "\n".join(files)))
    if report.summaries:
        rows.append(("steps", window_text(report.summaries[0].window)))
    if report.comparison is not None:
        rows += _comparison_rows(report.comparison)
    elif report.is_whole_trace and report.mean is not None:
        rows.append(("in all", f"{seconds_text(report.mean.seconds_per_step)}, which is no step's time"))
    elif report.mean is not None:
        rows.append(("step time", f"{seconds_text(report.mean.seconds_per_step)} in the trace"))
    notes = [*report.notes, *(note for summary in report.summaries for note in summary.notes)]
    if notes:
        rows.append(("notes", "\n".join(map(printable, dict.fromkeys(notes)))))
    return rows


def _more(count: int, what: str) -> list[str]:
    return [f"and {count} {what} more {ALL_OF_THEM}"] if count > 0 else []


def _file_text(file: TraceFile, place: str) -> str:
    path = Path(file.path)
    shown = path.relative_to(place) if path.is_relative_to(place) and path != Path(place) else path
    text = f"{printable(str(shown))} ({bytes_text(file.bytes)})"
    if file.summary is None:
        return f"{text}: {printable(file.why_not)}" + (
            f"; {printable(file.next_command)}" if file.next_command else ""
        )
    devices = file.summary.mean.devices
    return f"{text}: host {printable(file.summary.host)}, {devices} device{'s' if devices > 1 else ''}"


def window_text(window: StepWindow) -> str:
    """Which steps, how their ends are known, and what was left out."""
    numbers = f"{window.first_step} to {window.last_step} " if window.first_step is not None else ""
    out = ", ".join(f"{count}: {why}" for why, count in window.left_out.items())
    return f"{numbers}({window.steps}), {window.how}" + (f"\nleft out {out}" if out else "")


def _comparison_rows(found: Comparison) -> Rows:
    ours, alone = found.clock_seconds_per_step, found.unprofiled_seconds_per_step
    text = f"{seconds_text(found.trace_seconds_per_step)} in the trace"
    if ours is not None and found.difference is not None:
        text += f", {seconds_text(ours)} by our own clock over the same steps ({found.difference:+.2%})"
    else:
        text += f"; by our own clock unknown: {found.null_because['clock_seconds_per_step']}"
    rows = [("step time", text)]
    if found.whole_run or found.doubt:  # what a profiled step takes beside another is not known then
        return rows
    if alone is None:
        return [*rows, ("unprofiled", f"unknown: {found.null_because['unprofiled_seconds_per_step']}")]
    unprofiled = f"{seconds_text(alone)} median of the {found.unprofiled_steps} steps that count"
    if found.profiling_cost is not None:
        unprofiled += f"; a profiled step takes {found.profiling_cost:+.1%}"
    return [*rows, ("unprofiled", unprofiled)]


# --- where a step goes --------------------------------------------------------------------------


def _times_part(report: TraceReport, mean: DeviceTimes) -> list[str]:
    unit, scale = ("us", 1e6) if mean.seconds_per_step < 1e-3 else ("ms", 1e3)
    several = len(report.summaries) > 1
    single = [s.mean for s in report.summaries] if several else report.summaries[0].devices
    rows: Table = [("", *(TITLES.get(kind, kind) for kind in COLUMNS), "step")]
    rows += [_times_row(row.host if several else row.device, row, scale) for row in single[:MOST_ROWS]]
    if len(single) > 1:
        rows.append(_times_row(f"mean of {mean.devices}", mean, scale))
    shares = [mean.wall_seconds[kind] / mean.seconds_per_step if mean.seconds_per_step else 0 for kind in COLUMNS]
    rows.append(("share", *(f"{share:.1%}" for share in shares), f"{sum(shares):.1%}"))
    rows.append(("at work in all", *(f"{mean.work_seconds[kind] * scale:.2f}" for kind in KINDS), "", ""))
    more = [f"  {line}" for line in _more(len(single) - MOST_ROWS, "hosts" if several else "devices")]
    return [_times_title(report, unit), *columns(rows, numbers=range(1, len(rows[0]))), *more]


def _times_title(report: TraceReport, unit: str) -> str:
    read, there = len(report.summaries), len(report.of_phase)
    what = "reports" if all(file.format == "nsys" for file in report.of_phase) else "traces"
    mean = f"; mean of {read} of {there} {what}" if read < there else ""
    if report.is_whole_trace:
        return f"where the time of the whole trace goes ({unit}{mean})"
    return f"where a step goes ({unit} a step{mean})"


def _times_row(title: str, times: DeviceTimes, scale: float) -> tuple[str, ...]:
    name = printable(title)
    name = name if len(name) <= NAME_WIDTH else f"..{name[2 - NAME_WIDTH :]}"  # the rank stands at its end
    values = (*(times.wall_seconds[kind] for kind in COLUMNS), times.seconds_per_step)
    return (name, *(f"{value * scale:.2f}" for value in values))


def _communication(mean: DeviceTimes) -> list[str]:
    exposed, hidden = mean.exposed_communication_seconds, hidden_share(mean)
    if hidden is None:
        return ["Exposed communication: none, the trace holds no collective."]
    share = exposed / mean.seconds_per_step if mean.seconds_per_step else 0
    return [
        f"Exposed communication: {seconds_text(exposed)} of a step ({share:.1%});",
        f"{hidden:.1%} of the collectives' time has compute beside it.",
    ]


# --- operations, calls and files ----------------------------------------------------------------


def _operations(operations: Sequence[TopOperation], width: int) -> list[str]:
    """A module is named where it is not the one of the first."""
    rows: Table = [("share", "time", "calls", "kind", "operation")]
    for one in operations:
        foreign = one.module and one.module != operations[0].module
        name = printable(f"{one.name}  ({one.module})" if foreign else one.name)
        times = (f"{one.share:.1%}", seconds_text(one.seconds_per_step), count_text(one.calls_per_step))
        rows.append((*times, TITLES.get(one.kind, one.kind), name))
    return _cut(columns(rows, numbers=range(3)), width)


def _nccl_part(calls: NcclCalls, width: int) -> list[str]:
    if not calls.rows and not calls.unreadable_lines:
        return ["NCCL calls: none in its logs"]
    title = f"NCCL calls: {calls.calls:,} by {calls.writers} rank{'s' if calls.writers != 1 else ''}"
    if calls.unreadable_lines:
        title += f"; {calls.unreadable_lines} lines could not be read"
    if not calls.rows:
        return [title]
    rows: Table = [("collective", "type", "ranks", "size", "calls a rank", "bytes a rank")]
    rows += [
        (
            printable(row.collective),
            row.datatype,
            str(row.ranks),
            bytes_text(row.bytes_per_call),
            count_text(row.calls_per_rank),
            bytes_text(row.total_bytes),
        )
        for row in calls.rows[:MOST_CALLS]
    ]
    more = _more(len(calls.rows) - MOST_CALLS, "kinds of call")
    return [title, *_cut(columns(rows, numbers=range(2, 6)), width), *(f"  {line}" for line in more)]


def _to_open_text(one: ToOpen) -> str:
    paths = [printable(path) for path in one.paths[:MOST_PATHS]]
    return "\n".join([one.how, *paths, *_more(len(one.paths) - MOST_PATHS, "files")])


def _cut(lines: list[str], width: int) -> list[str]:
    """A long name loses its end, never a number: those stand before it."""
    width = max(width, NARROWEST)
    return [line if len(line) <= width else f"{line[: width - 3]}..." for line in lines]
