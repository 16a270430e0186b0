"""Report a traced step as text and as data. No I/O."""

from collections.abc import Iterator, Mapping

from benchmarks.compilation.compiled_report import LARGEST, fits_text, memory_grid
from benchmarks.compilation.program import Kind
from benchmarks.compilation.traced import KEPT, PARTS, Collectives, LayerFlops, TracedProgram, TraceReport
from benchmarks.text import Grid, Rows, aligned, bytes_text, title
from benchmarks.values import Benchmark, Value

NOTES = [
    "The memory excludes NCCL's buffers, CUDA graphs, fragmentation and the optimizer's temporary buffers.",
    "A trace measures neither time nor overlap. The FLOPs of attention ignore its mask.",
]


class TracedVariant(Value, frozen=True):
    """The report of one traced program. `fits`, `memory` and `collectives` describe the fullest stage."""

    name: str
    benchmark: Benchmark
    compiled: TraceReport
    fits: bool
    stage: int
    memory: list[Kind]
    matmuls: list[LayerFlops]
    collectives: list[Collectives]
    sent_bytes_by_axis: dict[str, float]  # axis -> bytes that a device sends in a step
    notes: list[str]


def as_data(name: str, program: TracedProgram) -> TracedVariant:
    return TracedVariant(
        name=name,
        benchmark=program.benchmark,
        compiled=program.compiled,
        fits=program.fits,
        stage=program.fullest.stage,
        memory=program.memory,
        matmuls=program.matmuls,
        collectives=program.collectives,
        sent_bytes_by_axis=program.bytes_by_axis,
        notes=notes(program),
    )


def text(program: TracedProgram) -> str:
    parts = [
        f"{title(program.benchmark)} · traced here for {program.compiled.devices} {program.benchmark.hardware.title}",
        *aligned(rows(program)),
    ]
    for grid in grids(program):
        parts += ["", grid.heading, *grid.lines()]
    return "\n".join([*parts, "", *(f"  {note}" for note in notes(program))])


def rows(program: TracedProgram) -> Rows:
    report = program.compiled
    made = sum(one.forward + one.backward + one.recomputed for one in program.matmuls)
    planned = sum(one.planned for one in program.matmuls)
    sent = sum(program.bytes_by_axis.values())
    return [
        ("mesh", " x ".join(f"{axis} {size}" for axis, size in report.mesh.items()) or "one device"),
        ("matmuls", f"{made:.5g} FLOPs per step, {planned:.5g} by the formula"),
        ("traffic", f"{bytes_text(sent)} per device and step, sent in rings"),
        ("memory", fits_text(program)),
        ("versions", ", ".join(f"{name} {number}" for name, number in report.versions.items())),
        *((f"{name} replaced", words) for name, words in report.replaced.items()),
    ]


def notes(program: TracedProgram) -> list[str]:
    traced, all_of_them = program.compiled.traced_micro_batches, program.benchmark.batch.gradient_accumulation
    return [f"{traced} of {all_of_them} micro-batches were traced; the others repeat them.", *NOTES]


def grids(program: TracedProgram) -> Iterator[Grid]:
    heading = f"memory of a device of stage {program.fullest.stage}, the fullest, at its peak"
    yield memory_grid(program, "traced", heading)
    if len(program.compiled.stages) > 1:
        yield stages_grid(program)
    yield layer_grid(program)
    yield tensors_grid(program)
    yield matmuls_grid(program)
    yield collectives_grid(program)


def stages_grid(program: TracedProgram) -> Grid:
    lines = []
    for stage in program.compiled.stages:
        kinds = stage.bytes_by_kind().values()
        lines.append((str(stage.stage), str(stage.layers), *map(bytes_text, kinds), bytes_text(stage.peak_bytes)))
    titles = ["stage", "#layers", *(f"#{kind}" for kind in PARTS), "#peak"]
    return Grid("pipeline stages", titles, lines)


def layer_grid(program: TracedProgram) -> Grid:
    kept = program.fullest.kept_in_a_layer
    lines = [(name or "residual", bytes_text(size)) for name, size in sorted(kept.items(), key=lambda one: -one[1])]
    lines = [line for line in lines if not line[1].startswith("0 ")]
    lines.append(("all", bytes_text(sum(kept.values()))))
    return Grid("activations that a layer keeps for one micro-batch", ["made by", "#size"], lines)


def tensors_grid(program: TracedProgram) -> Grid:
    lines = [
        (one.layer or "between layers", one.kind, one.shape, f"{one.count:,}", bytes_text(one.bytes))
        for one in program.fullest.held[:LARGEST]
    ]
    return Grid("the largest tensors at the peak", ["made by", "kind", "shape", "#count", "#size"], lines)


def matmuls_grid(program: TracedProgram) -> Grid:
    lines = [
        (one.layer, f"{one.forward:.4g}", f"{one.backward:.4g}", f"{one.recomputed:.4g}", f"{one.planned:.4g}")
        for one in program.matmuls
    ]
    titles = ["module", "#forward", "#backward", "#recomputed", "#formula, without recomputation"]
    return Grid("FLOPs of all devices in a step", titles, lines)


def collectives_grid(program: TracedProgram) -> Grid:
    lines = [
        (one.kind, one.axis, str(one.group_size), one.part, f"{one.times:,}", bytes_text(one.sent_bytes))
        for one in program.collectives
    ]
    titles = ["collective", "axis", "#group", "part", "#per step", "#sent per step"]
    return Grid(f"collectives of a device of stage {program.fullest.stage}", titles, lines)


def variants_grid(programs: Mapping[str, TracedProgram], heading: str) -> Grid:
    first = next(iter(programs.values()))
    lines = []
    for name, one in sorted(programs.items(), key=lambda row: row[1].rank):
        kept = one.fullest.bytes_by_kind()[KEPT]
        again = sum(row.recomputed for row in one.matmuls) / sum(row.forward + row.backward for row in one.matmuls)
        sent = ", ".join(f"{axis} {bytes_text(size)}" for axis, size in one.bytes_by_axis.items()) or "none"
        change = "" if one is first else f"{one.peak_bytes / first.peak_bytes - 1:+.1%}"
        fits = "yes" if one.fits else "NO"
        stage = str(one.fullest.stage)
        lines.append((name, fits, bytes_text(one.peak_bytes), change, stage, bytes_text(kept), f"{again:.1%}", sent))
    titles = [
        "variant", "fits", "#peak", "#change", "#stage", "#kept activations", "#recomputed FLOPs", "sent per step",
    ]  # fmt: skip
    return Grid(heading, titles, lines)
