"""Make the page of a compiled step: the memory of a device, the collectives, and the time of a step. No I/O.

The tables are those of the text report (benchmarks/compilation/compiled_report.py and variants.py).
"""

from collections.abc import Mapping

from benchmarks.compilation import compiled_report as report
from benchmarks.compilation import traced_report, variants
from benchmarks.compilation.program import Program
from benchmarks.compilation.traced import TracedProgram
from benchmarks.errors import StepmarkError
from benchmarks.pages.page import (
    Block,
    Box,
    Facts,
    Headline,
    Headlines,
    Part,
    Plots,
    Section,
    Words,
    table_of,
)
from benchmarks.pages.run import described
from benchmarks.pages.schedule_picture import schedule_plot
from benchmarks.text import bytes_text, title


def compiled_parts(programs: variants.Programs, failed: Mapping[str, StepmarkError]) -> list[Part]:
    """Return a part for each program. If there are several programs, the first part compares them."""
    if len(programs) + len(failed) == 1:
        return [part_of(program) for program in programs.values()]
    several = [part_of(program, f"program-{number}", name) for number, (name, program) in enumerate(programs.items())]
    return [_variants_part(programs, failed), *several]


def _variants_part(programs: variants.Programs, failed: Mapping[str, StepmarkError]) -> Part:
    fitting, count = sum(program.fits for program in programs.values()), len(programs) + len(failed)
    return Part(
        key="variants",
        kind="Compiled variants",
        verdict=f"{fitting} of {count} fit",
        tone="good" if fitting == count else "warm",
        heading="All variants",
        under=title(next(iter(programs.values())).benchmark).partition(" · ")[0],
        name="",
        blocks=[table_of(variants.grid(programs)), Words(variants.notes(programs, failed), "list")],
    )


def part_of(program: Program | TracedProgram, key: str = "program", name: str = "") -> Part:
    return Part(
        key=key,
        kind="Traced program" if isinstance(program, TracedProgram) else "Compiled program",
        verdict="fits" if program.fits else "does not fit",
        tone="good" if program.fits else "bad",
        heading=name or title(program.benchmark).partition(" · ")[0],
        under=described(program.benchmark),
        name="",
        blocks=traced_blocks(program) if isinstance(program, TracedProgram) else compiled_blocks(program, key),
    )


def traced_blocks(program: TracedProgram) -> list[Block]:
    return [
        Box("bad", "It does not fit", [] if program.fits else [report.fits_text(program)]),
        Section("The program", [Facts(traced_report.rows(program))]),
        *(Section(grid.heading, [table_of(grid)]) for grid in traced_report.grids(program)),
        Words(traced_report.notes(program), "muted"),
    ]


def compiled_blocks(program: Program, key: str) -> list[Block]:
    compiled, times = program.compiled, program.breakdown
    return [
        Box("bad", "It does not fit", [] if program.fits else [report.fits_text(program)]),
        Headlines(_headlines(program)),
        Section("Memory", [
            table_of(report.memory_grid(program)),
            Words([f"{report.held_text(program)}; {report.fits_text(program)}"], "muted"),
            table_of(report.buffers_grid(program)),
        ]),
        Section("Time", [
            table_of(report.time_grid(times)),
            Words(times.notes, "muted"),
            Plots(schedule_plot(program.benchmark, compiled.schedule, times.loops, f"{key}-layer")),
        ]),
        Section("Collectives", [table_of(report.collectives_grid(compiled.schedule))]),
        Section("Matmuls and attention", [table_of(report.kernels_grid(compiled.schedule))]),
        Section("The program", [Facts(report.rows(compiled))]),
    ]  # fmt: skip


def _headlines(program: Program) -> list[Headline]:
    peak, sent = program.peak_bytes, sum(map(sum, program.bytes_by_axis.values()))
    planned = sum(one.planned_bytes for one in program.memory)
    of_plan = f"planned {bytes_text(planned)} ({planned / peak - 1:+.1%})"
    return [
        Headline("peak memory of a device", bytes_text(peak), of_plan),
        Headline("sent by a device in a step", bytes_text(sent), f"{bytes_text(program.exposed_bytes)} exposed"),
    ]
