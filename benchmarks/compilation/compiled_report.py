"""What a person reads of a compiled step: what the program holds, and each figure beside its formula. Pure."""

from collections.abc import Sequence

import msgspec

from benchmarks.compilation.compiled import Compiled, Line
from benchmarks.compilation.held import Kind, kind_of, place_of
from benchmarks.compilation.overlap import Kernels, Overlap, kernels, overlap
from benchmarks.compilation.program import Program
from benchmarks.compilation.schedule import Schedule
from benchmarks.compilation.walk import UNKNOWN, Walked
from benchmarks.rendering import report
from benchmarks.rendering.columns import Grid, Rows, aligned
from benchmarks.values import Benchmark, Value

# How many of the largest buffers are shown.
LARGEST = 10
ADAPTERS = "matmuls and collectives of a step that trains adapters are compared with no formula"


class Sent(Value, frozen=True):
    exposed_bytes: float
    hidden_bytes: float


class ComparedLine(Line, frozen=True, kw_only=True):
    left_over: float
    explained: bool


class Variant(Value, frozen=True):
    """All of a program: what it holds, sends and takes, and how it compares with the formulas."""

    name: str
    benchmark: Benchmark
    compiled: Compiled
    fits: bool
    memory: list[Kind]
    kernels: list[Kernels]
    overlap: list[Overlap]
    sent_per_step: dict[str, Sent]  # by axis
    modelled: Walked
    lines: list[ComparedLine]
    not_explained: list[str]


def as_data(name: str, program: Program) -> Variant:
    return Variant(
        name=name,
        benchmark=program.benchmark,
        compiled=program.compiled,
        fits=program.fits,
        memory=program.memory,
        kernels=kernels(program.compiled.schedule),
        overlap=overlap(program.compiled.schedule),
        sent_per_step={
            axis: Sent(exposed_bytes=exposed, hidden_bytes=hidden)
            for axis, (exposed, hidden) in program.bytes_by_axis.items()
        },
        modelled=msgspec.structs.replace(program.walked, loops={}),
        lines=[
            ComparedLine(**msgspec.structs.asdict(line), left_over=line.left_over, explained=line.explained)
            for line in program.lines
        ],
        not_explained=program.not_explained,
    )


def text(program: Program) -> str:
    benchmark, compiled = program.benchmark, program.compiled
    within = [f"{line.what} {_signed(line.left_over, line.unit)}" for line in program.lines if line.left_over]
    rest = f"nothing beyond the tolerance of a line\nleft over within it: {', '.join(within) or 'nothing'}"
    parts = [
        f"{report.title(benchmark)} · compiled here for {compiled.devices} {compiled.target}",
        *aligned(rows(benchmark, compiled)),
        "",
        *_memory(program),
        "",
        *_lines(kernels_grid(compiled.schedule)),
        "",
        *_lines(collectives_grid(compiled.schedule)),
        "",
        *_time(program.walked),
        "",
        "compared with the formulas, for one device and step, before XLA drops what is computed twice",
        *(text for line in program.lines for text in line_texts(line)),
        *aligned([("not explained", "\n".join(program.not_explained) or rest)]),
    ]
    return "\n".join(parts)


def rows(benchmark: Benchmark, compiled: Compiled) -> Rows:
    mesh = " x ".join(f"{axis} {size}" for axis, size in compiled.mesh.items()) or "one device"
    seconds = ", ".join(f"{part} {report.seconds_text(value)}" for part, value in compiled.seconds.items())
    traffic = f"{report.bytes_text(compiled.wire_bytes)} per device and step, sent in rings"
    if benchmark.parallelism.tensor * benchmark.parallelism.context > 1:
        traffic += "; beside a tensor or context axis it is not compared"
    return [
        ("mesh", mesh),
        ("parameters", f"{compiled.parameters:,}"),
        ("matmuls", f"{compiled.dot_flops:.5g} FLOPs per device and step"),
        ("traffic", traffic),
        ("loops", ", ".join(f"{name} x {trips}" for name, trips in compiled.loops.items()) or "none"),
        ("XLA flags", compiled.flags.replace(" --", "\n--") or "none"),
        ("program", f"{compiled.program_sha256[:16]}, of step {compiled.step_sha256[:16]} (SHA-256)"),
        ("took", f"{seconds}; {report.bytes_text(compiled.peak_memory_bytes)} of memory"),
        ("versions", ", ".join(f"{name} {number}" for name, number in list(compiled.versions.items())[:5])),
        *((f"{name} replaced", text) for name, text in compiled.replaced.items()),
        *([("note", ADAPTERS)] if benchmark.lora else []),
    ]


def _lines(grid: Grid) -> list[str]:
    return [grid.heading, *grid.lines()]


def _memory(program: Program) -> list[str]:
    buffers = buffers_grid(program)
    return [
        *_lines(memory_grid(program)),
        f"  {held_text(program)}; {fits_text(program)}",
        f"  {buffers.heading}",
        *buffers.lines(indent="    "),
    ]


def memory_grid(program: Program) -> Grid:
    """By kind beside the plan's parts."""
    kinds, peak = program.memory, program.compiled.peak_bytes
    found = [(one.name, one.held_bytes, one.planned_bytes) for one in kinds]
    found.append(("peak of a device", peak, sum(one.planned_bytes for one in kinds)))
    rows = [
        (name, report.bytes_text(held), report.bytes_text(planned), f"{planned / held - 1:+.1%}" if held else "")
        for name, held, planned in found
    ]
    heading = "memory of a device at the peak of the step, without NCCL's buffers and CUDA's own"
    return Grid(heading, ["kind", "#compiled", "#plan", "#difference"], rows)


def held_text(program: Program) -> str:
    compiled = program.compiled
    arguments, temporaries = report.bytes_text(compiled.argument_bytes), report.bytes_text(compiled.temporary_bytes)
    return f"arguments {arguments}, temporaries {temporaries}"


def buffers_grid(program: Program) -> Grid:
    rows = [
        (place_of(one), kind_of(one, program.benchmark), one.shape, report.bytes_text(one.bytes))
        for one in program.compiled.held[:LARGEST]
    ]
    return Grid(f"its {len(rows)} largest buffers", ["of", "kind", "shape", "#size"], rows)


def fits_text(program: Program) -> str:
    peak, usable = report.bytes_text(program.compiled.peak_bytes), program.usable_bytes
    if usable is None:
        return f"{peak} at the peak"
    share = f"{program.storage.usable_fraction:.0%} of {program.benchmark.hardware.title}"
    return f"{'fits' if program.fits else 'DOES NOT FIT'}: {peak} of {report.bytes_text(usable)} ({share})"


def kernels_grid(schedule: Schedule) -> Grid:
    """Matmuls by precision, and attention."""
    rows = [
        (one.what, one.kind, f"{one.instructions:,}", f"{one.times:,}", f"{one.flops:.4g}")
        for one in kernels(schedule)
    ]
    titles = ["kernel", "in", "#instructions", "#per step", "#FLOPs per step"]
    return Grid("matmuls and attention of the finished program, of a device", titles, rows)


def collectives_grid(schedule: Schedule) -> Grid:
    """Those of one kind together, and what is scheduled beside them."""
    found = overlap(schedule)
    groups: dict[tuple[str, str, str, str], list[Overlap]] = {}
    for one in found:
        beside = "hidden" if one.hidden else "exposed" if one.asynchronous else "exposed, synchronous"
        groups.setdefault((one.kind, " and ".join(one.axes) or "-", one.part, beside), []).append(one)
    rows = [
        (
            *key,
            f"{len(group):,}",
            f"{sum(one.times for one in group):,}",
            report.bytes_text(sum(one.wire_bytes * one.times for one in group)),
            _beside(group),
        )
        for key, group in sorted(groups.items(), key=lambda row: -sum(one.wire_bytes * one.times for one in row[1]))
    ]
    titles = [
        "collective", "axis", "part", "beside work", "#instructions", "#per step", "#sent per step",
        "between start and done, mean",
    ]  # fmt: skip
    hidden = sum(one.hidden for one in found)
    heading = f"collectives: {hidden} of {len(found)} have a matmul or attention between their start and their done"
    return Grid(heading, titles, rows)


def _beside(group: Sequence[Overlap]) -> str:
    words = (("matmul", "matmuls"), ("attention", "attentions"), ("fusion", "fusions"))
    means = {word: sum(getattr(one, field) for one in group) / len(group) for word, field in words}
    return ", ".join(f"{mean:.1f} {word}" for word, mean in means.items() if mean) or "nothing"


def _time(walked: Walked) -> list[str]:
    grid = _lines(time_grid(walked)) if walked.seconds else []
    return [*grid, *(f"  {note}" for note in time_notes(walked))]


def time_grid(walked: Walked) -> Grid:
    rows = [(what, f"{seconds / walked.seconds:.1%}") for what, seconds in walked.spent.items()]
    heading = (
        "where the time of a step goes: the schedule walked with published rates (docs/compiling.md), no prediction"
    )
    return Grid(heading, ["spent on", "#share"], rows)


def time_notes(walked: Walked) -> list[str]:
    modelled = [f"modelled in all: {report.seconds_text(walked.seconds)}; {UNKNOWN}"] if walked.seconds else []
    return [*modelled, *walked.notes]


# --- lines of the comparison --------------------------------------------------------------------


def line_texts(line: Line) -> list[str]:
    state = "" if line.explained else "   NOT EXPLAINED"
    rows = [
        ("at most" if line.at_most else "formula", f"{_amount(line.expected, line.unit)}   {line.formula}"),
        *((_signed(cause.amount, line.unit), cause.text) for cause in line.causes),
        ("program", _amount(line.counted, line.unit)),
        ("left over", f"{_signed(line.left_over, line.unit)}{state}"),
    ]
    return [f"  {line.what}", *aligned(rows, indent="    ")]


def _amount(number: float, unit: str) -> str:
    if unit == "bytes":
        return report.bytes_text(number)
    return f"{number:.7g} {unit}" if unit == "FLOPs" else f"{number:,.0f}"


def _signed(number: float, unit: str) -> str:
    sign = "-" if number < 0 else "+"
    return f"{sign}{_amount(abs(number), unit)}" if number else "0"
