"""The page of a compiled step: the memory of a device, the collectives, and how the time is spent. Pure.

The tables come from the text report (benchmarks/compilation/compiled_report.py and variants.py).
"""

from collections.abc import Mapping

from benchmarks.compilation import compiled_report as report
from benchmarks.compilation import variants
from benchmarks.compilation.program import Program
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


def compiled_parts(programs: Mapping[str, Program], failed: Mapping[str, StepmarkError]) -> list[Part]:
    """Return a part for each program. If there are several, a part that compares them comes first."""
    if len(programs) + len(failed) == 1:
        return [compiled_part(program) for program in programs.values()]
    several = [
        compiled_part(program, f"program-{number}", name) for number, (name, program) in enumerate(programs.items())
    ]
    return [_variants_part(programs, failed), *several]


def _variants_part(programs: Mapping[str, Program], failed: Mapping[str, StepmarkError]) -> Part:
    fitting, count = sum(program.fits for program in programs.values()), len(programs) + len(failed)
    return Part(
        key="variants",
        kind="Compiled variants",
        verdict=f"{fitting} of {count} fit",
        tone="good" if fitting == count else "warm",
        heading="All variants",
        under=title(next(iter(programs.values())).benchmark).partition(" · ")[0],
        name="",
        blocks=[table_of(variants.grid(programs)), Words(variants.notes(failed), "list")],
    )


def compiled_part(program: Program, key: str = "program", name: str = "") -> Part:
    compiled, times = program.compiled, program.breakdown
    blocks: list[Block] = [
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
    return Part(
        key=key,
        kind="Compiled program",
        verdict="fits" if program.fits else "does not fit",
        tone="good" if program.fits else "bad",
        heading=name or title(program.benchmark).partition(" · ")[0],
        under=described(program.benchmark),
        name="",
        blocks=blocks,
    )


def _headlines(program: Program) -> list[Headline]:
    peak, sent = program.compiled.peak_bytes, sum(map(sum, program.bytes_by_axis.values()))
    planned = sum(one.planned_bytes for one in program.memory)
    of_plan = f"planned {bytes_text(planned)} ({planned / peak - 1:+.1%})"
    return [
        Headline("memory of a device at its peak", bytes_text(peak), of_plan),
        Headline("sent by a device in a step", bytes_text(sent), f"{bytes_text(program.exposed_bytes)} exposed"),
    ]
