"""Report a compiled step as text and as data: memory, kernels, collectives, and which work hides them. No I/O."""

from benchmarks.compilation.breakdown import Breakdown
from benchmarks.compilation.compiled import CompileReport, Kernels, Overlap, Schedule, kernels, overlap
from benchmarks.compilation.program import Kind, Program, StepProgram, kind_of, place_of
from benchmarks.text import Grid, Rows, aligned, bytes_text, title
from benchmarks.values import Benchmark, Value

LARGEST = 10  # the most buffers in the report


class TrafficBytes(Value, frozen=True):
    exposed_bytes: float
    hidden_bytes: float


class Variant(Value, frozen=True):
    """One compiled program: its memory, its kernels, its collectives, and the modelled shares of a step's time."""

    name: str
    benchmark: Benchmark
    compiled: CompileReport
    fits: bool
    memory: list[Kind]
    kernels: list[Kernels]
    overlap: list[Overlap]
    sent_per_step: dict[str, TrafficBytes]  # axis of the layout -> bytes that a device sends
    shares: dict[str, float]  # activity of compute -> share of a step; empty if a rate is unknown
    notes: list[str]


def as_data(name: str, program: Program) -> Variant:
    times = program.breakdown
    return Variant(
        name=name,
        benchmark=program.benchmark,
        compiled=program.compiled,
        fits=program.fits,
        memory=program.memory,
        kernels=kernels(program.compiled.schedule),
        overlap=overlap(program.compiled.schedule),
        sent_per_step={
            axis: TrafficBytes(exposed_bytes=exposed, hidden_bytes=hidden)
            for axis, (exposed, hidden) in program.bytes_by_axis.items()
        },
        shares=times.shares,
        notes=times.notes,
    )


def text(program: Program) -> str:
    compiled, times, buffers = program.compiled, program.breakdown, buffers_grid(program)
    in_buffers = [f"  {held_text(program)}; {fits_text(program)}", f"  {buffers.heading}", *buffers.lines("    ")]
    parts = [
        f"{title(program.benchmark)} · compiled here for {compiled.devices} {compiled.target}",
        *aligned(rows(compiled)),
    ]
    for grid in (memory_grid(program), kernels_grid(compiled.schedule), collectives_grid(compiled.schedule)):
        parts += ["", grid.heading, *grid.lines(), *in_buffers]
        in_buffers = []
    shares = time_grid(times)
    spent = [shares.heading, *shares.lines()] if times.shares else []
    return "\n".join([*parts, "", *spent, *(f"  {note}" for note in times.notes)])


def rows(compiled: CompileReport) -> Rows:
    mesh = " x ".join(f"{axis} {size}" for axis, size in compiled.mesh.items()) or "one device"
    flops = sum(one.flops for one in kernels(compiled.schedule) if one.what == "matmul")
    sent = sum(one.sent_bytes for one in overlap(compiled.schedule))
    return [
        ("mesh", mesh),
        ("parameters", f"{compiled.parameters:,}"),
        ("matmuls", f"{flops:.5g} FLOPs per device and step"),
        ("traffic", f"{bytes_text(sent)} per device and step, sent in rings"),
        ("XLA flags", compiled.flags.replace(" --", "\n--") or "none"),
        ("program", f"{compiled.program_sha256[:16]}, compiled from {compiled.step_sha256[:16]} (SHA-256)"),
        ("versions", ", ".join(f"{name} {number}" for name, number in list(compiled.versions.items())[:5])),
        *((f"{name} replaced", text) for name, text in compiled.replaced.items()),
    ]


OF_A_COMPILED_STEP = "memory of a device at the peak of the step, without NCCL's buffers and CUDA's own memory"


def memory_grid(program: StepProgram, made: str = "compiled", heading: str = OF_A_COMPILED_STEP) -> Grid:
    """Return a table of the memory by kind, next to the memory that the plan expects."""
    found = [(one.name, one.held_bytes, one.planned_bytes) for one in program.memory]
    found.append(("peak of a device", program.peak_bytes, sum(planned for _, _, planned in found)))
    rows = [
        (name, bytes_text(held), bytes_text(planned), f"{planned / held - 1:+.1%}" if held else "")
        for name, held, planned in found
    ]
    return Grid(heading, ["kind", f"#{made}", "#plan", "#difference"], rows)


def held_text(program: Program) -> str:
    compiled = program.compiled
    return f"arguments {bytes_text(compiled.argument_bytes)}, temporaries {bytes_text(compiled.temporary_bytes)}"


def buffers_grid(program: Program) -> Grid:
    rows = [
        (place_of(one), kind_of(one, program.benchmark), one.shape, bytes_text(one.bytes))
        for one in program.compiled.held[:LARGEST]
    ]
    return Grid(f"the {len(rows)} largest buffers", ["belongs to", "kind", "shape", "#size"], rows)


def fits_text(program: StepProgram) -> str:
    peak, usable = bytes_text(program.peak_bytes), program.usable_bytes
    if usable is None:
        return f"{peak} at the peak"
    share = f"{program.storage.usable_fraction:.0%} of {program.benchmark.hardware.title}"
    return f"{'fits' if program.fits else 'DOES NOT FIT'}: {peak} of {bytes_text(usable)} ({share})"


def kernels_grid(schedule: Schedule) -> Grid:
    """Return a table of the matmuls of each precision and of the attention kernels."""
    rows = [
        (one.what, one.kind, f"{one.instructions:,}", f"{one.times:,}", f"{one.flops:.4g}")
        for one in kernels(schedule)
    ]
    titles = ["kernel", "type", "#instructions", "#per step", "#FLOPs per step"]
    return Grid("matmuls and attention in the compiled program, on one device", titles, rows)


def collectives_grid(schedule: Schedule) -> Grid:
    """Return a table of collectives by kind, with the mean amount of work between `start` and `done`."""
    found = overlap(schedule)
    groups: dict[tuple[str, str, str, str], list[Overlap]] = {}
    for one in found:
        overlapped = "hidden" if one.hidden else "exposed" if one.asynchronous else "exposed, synchronous"
        groups.setdefault((one.kind, " and ".join(one.axes) or "-", one.part, overlapped), []).append(one)
    rows = [
        (
            *key,
            f"{len(group):,}",
            f"{sum(one.times for one in group):,}",
            bytes_text(sum(one.sent_bytes for one in group)),
            ", ".join(
                f"{mean:.1f} {word}"
                for word in ("matmul", "attention", "fusion")
                if (mean := sum(getattr(one, f"{word}s") for one in group) / len(group))
            )
            or "nothing",
        )
        for key, group in sorted(groups.items(), key=lambda row: -sum(one.sent_bytes for one in row[1]))
    ]
    titles = [
        "collective", "axis", "part", "overlap", "#instructions", "#per step", "#sent per step",
        "mean number between start and done",
    ]  # fmt: skip
    hidden = sum(one.hidden for one in found)
    heading = f"collectives: {hidden} of {len(found)} have a matmul or attention between start and done"
    return Grid(heading, titles, rows)


def time_grid(times: Breakdown) -> Grid:
    rows = [(what, f"{share:.1%}") for what, share in times.shares.items()]
    heading = "parts of a step's time, modelled with published rates (not a prediction)"
    return Grid(heading, ["spent on", "#share"], rows)
