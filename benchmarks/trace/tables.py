"""Format a TraceReport as text that is 80 columns wide. No I/O."""

from pathlib import Path

from benchmarks.text import Rows, aligned, bytes_text, columns, count_text, plural, printable, seconds_text
from benchmarks.trace.kinds import COLLECTIVE, IDLE, KINDS
from benchmarks.trace.nccl import NcclCalls
from benchmarks.trace.report import TraceFile, TraceReport
from benchmarks.trace.summary import DeviceTimes

MOST_ROWS = 16
MOST_CALLS = 32
NAME_WIDTH = 14  # the longest name of a host in a table of 80 columns
COLUMNS = (*KINDS, IDLE)
TITLES = {"copy": "copies"}
Table = list[tuple[str, ...]]

HOW_TO_READ = (
    "Every moment has one kind, so the parts add up to the step: compute (matmul, attention or",
    "other) if the device computes; otherwise collectives if any is running; otherwise copies.",
    "Collectives include the wait for the slowest device.",
)


def report_text(report: TraceReport) -> str:
    """Return the report as text: the files, how a step spends its time, and NCCL's calls."""
    parts = [[report.title, *aligned(_rows(report))]]
    if report.mean is not None:
        parts.append(_times_part(report, report.mean))
        parts.append([f"  {line}" for line in (*_communication(report.mean), *HOW_TO_READ)])
    if report.nccl is not None:
        parts.append(_nccl_part(report.nccl))
    return "\n\n".join("\n".join(part) for part in parts)


def _rows(report: TraceReport) -> Rows:
    rows: Rows = []
    compared = report.comparison
    if report.files:
        files = [_file_text(file, report.place) for file in report.files[:MOST_ROWS]]
        files += _omitted_text(len(report.files) - MOST_ROWS, "files")
        rows.append(("traces" if len(report.files) > 1 else "trace", "\n".join(files)))
    if report.summaries:
        window = report.summaries[0].window
        numbers = f"{window.first_step} to {window.last_step} " if window.first_step is not None else ""
        out = ", ".join(f"{count}: {why}" for why, count in window.left_out.items())
        rows.append(("steps", f"{numbers}({window.steps}), {window.how}" + (f"\nexcluded {out}" if out else "")))
    if report.mean is not None:
        text = f"{seconds_text(report.mean.seconds_per_step)}"
        if report.is_whole_trace:
            rows.append(("in all", f"{text} for the whole trace, not per step"))
        else:
            clock = f", {seconds_text(compared.clock_seconds_per_step)} as Stepmark measured it" if compared else ""
            difference = f" ({compared.difference:+.2%})" if compared else ""
            rows.append(("step time", f"{text} in the trace{clock}{difference}"))
    notes = [*report.notes, *(note for summary in report.summaries for note in summary.notes)]
    if notes:
        rows.append(("notes", "\n".join(map(printable, dict.fromkeys(notes)))))
    return rows


def _omitted_text(count: int, what: str) -> list[str]:
    return [f"and {count} more {what} (--json has all)"] if count > 0 else []


def _file_text(file: TraceFile, place: str) -> str:
    path = Path(file.path)
    shown = path.relative_to(place) if path.is_relative_to(place) and path != Path(place) else path
    text = f"{printable(str(shown))} ({bytes_text(file.bytes)}): "
    if file.summary is None:
        return text + printable(file.why_not)
    return f"{text}host {printable(file.summary.host)}, {plural(file.summary.mean.devices, 'device')}"


# --- the time of a step --------------------------------------------------------------------------


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
    rows.append(("busy in total", *(f"{mean.work_seconds[kind] * scale:.2f}" for kind in KINDS), "", ""))
    read, there = len(report.summaries), len(report.files)
    of = f"; mean of {read} of {there} files" if read < there else ""
    title = f"time in the whole trace ({unit}{of})" if report.is_whole_trace else f"time in a step ({unit}{of})"
    more = [f"  {line}" for line in _omitted_text(len(single) - MOST_ROWS, "hosts" if several else "devices")]
    return [title, *columns(rows, numbers=range(1, len(rows[0]))), *more]


def _times_row(title: str, times: DeviceTimes, scale: float) -> tuple[str, ...]:
    name = printable(title)
    name = name if len(name) <= NAME_WIDTH else f"..{name[2 - NAME_WIDTH :]}"  # keep the end, which contains the rank
    values = (*(times.wall_seconds[kind] for kind in COLUMNS), times.seconds_per_step)
    return (name, *(f"{value * scale:.2f}" for value in values))


def _communication(mean: DeviceTimes) -> list[str]:
    exposed, work = mean.wall_seconds[COLLECTIVE], mean.work_seconds[COLLECTIVE]
    if not work:
        return ["Exposed communication: none, because the trace has no collective."]
    share = exposed / mean.seconds_per_step if mean.seconds_per_step else 0
    return [
        f"Exposed communication: {seconds_text(exposed)} of a step ({share:.1%});",
        f"{1 - exposed / work:.1%} of the collectives' time overlaps compute.",
    ]


# --- NCCL's calls -----------------------------------------------------------------------


def _nccl_part(calls: NcclCalls) -> list[str]:
    title = f"NCCL calls: {calls.calls:,} by {plural(calls.writers, 'rank')}"
    if calls.unreadable_lines:
        title += f"; {calls.unreadable_lines} lines could not be read"
    rows: Table = [("collective", "type", "ranks", "size", "calls per rank", "bytes per rank")]
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
    more = _omitted_text(len(calls.rows) - MOST_CALLS, "types of call")
    return [title, *columns(rows, numbers=range(2, 6)), *(f"  {line}" for line in more)]
