"""A compiled step's page: what a device holds, what the program exchanges, where its time goes. Pure.

Its tables are those of the text report (benchmarks/compilation/compiled_report.py and variants.py).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.compilation import compiled_report as report
from benchmarks.compilation import variants
from benchmarks.compilation.program import Kind, Program
from benchmarks.errors import StepmarkError
from benchmarks.pages.drawing import BLUE, INK, MUTED, Margins, plot
from benchmarks.pages.page import (
    Block,
    Box,
    Cell,
    Facts,
    Headline,
    Headlines,
    Key,
    Overview,
    Part,
    Plot,
    Plots,
    Section,
    Table,
    Tone,
    Words,
)
from benchmarks.pages.run import described
from benchmarks.pages.schedule_picture import schedule_plot
from benchmarks.text import Grid, bytes_text, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def compiled_parts(programs: Mapping[str, Program], failed: Mapping[str, StepmarkError]) -> list[Part]:
    """A part for each program; of several, the comparison of them all comes first."""
    if len(programs) + len(failed) == 1:
        return [compiled_part(program) for program in programs.values()]
    several = [
        compiled_part(program, f"program-{number}", name) for number, (name, program) in enumerate(programs.items())
    ]
    return [_variants_part(programs, failed), *several]


def _variants_part(programs: Mapping[str, Program], failed: Mapping[str, StepmarkError]) -> Part:
    grid = variants.grid(programs)
    fitting = sum(program.fits for program in programs.values())
    verdict = f"{fitting} of {len(programs) + len(failed)} fit"
    tone: Tone = "good" if fitting == len(programs) + len(failed) else "warm"
    heading = title(next(iter(programs.values())).benchmark).partition(" · ")[0]
    blocks: list[Block] = [
        _table(grid),
        Words(variants.notes(failed), "list"),
    ]
    return Part(
        "variants", "Compiled variants", "All variants", verdict, tone, heading, "", "", blocks, Overview(heading)
    )


def compiled_part(program: Program, key: str = "program", name: str = "") -> Part:
    compiled, times = program.compiled, program.breakdown
    blocks: list[Block] = [
        Box("bad", "It does not fit", [] if program.fits else [report.fits_text(program)]),
        Headlines(_headlines(program)),
        Section("Memory", [
            Plots(_memory_plot(program.memory, f"{key}-memory")),
            Words([f"{report.held_text(program)}; {report.fits_text(program)}"], "muted"),
            _table(report.buffers_grid(program)),
        ]),
        Section("Time", [
            _table(report.time_grid(times)),
            Words(times.notes, "muted"),
            Plots(schedule_plot(program.benchmark, compiled.schedule, times.loops, f"{key}-layer")),
        ]),
        Section("Collectives", [_table(report.collectives_grid(compiled.schedule))]),
        Section("Matmuls and attention", [_table(report.kernels_grid(compiled.schedule))]),
        Section("The program", [Facts(report.rows(compiled))]),
    ]  # fmt: skip
    tone: Tone = "good" if program.fits else "bad"
    verdict = "fits" if program.fits else "does not fit"
    heading = title(program.benchmark).partition(" · ")[0]
    under = described(program.benchmark)
    overview = Overview(name or heading, under)
    return Part(key, "Compiled program", name or heading, verdict, tone, heading, under, name, blocks, overview)


def _table(grid: Grid) -> Table:
    return Table(
        grid.heading[:1].upper() + grid.heading[1:], grid.titles, [[Cell(text) for text in row] for row in grid.rows]
    )


def _headlines(program: Program) -> list[Headline]:
    peak, sent = program.compiled.peak_bytes, sum(map(sum, program.bytes_by_axis.values()))
    planned = sum(one.planned_bytes for one in program.memory)
    exposed = program.exposed_bytes
    return [
        Headline(
            "memory of a device at its peak",
            bytes_text(peak),
            peak,
            "compiled.peak_bytes",
            f"planned {bytes_text(planned)} ({planned / peak - 1:+.1%})",
        ),
        Headline(
            "sent by a device in a step", bytes_text(sent), sent, "sent_per_step", f"{bytes_text(exposed)} exposed"
        ),
    ]


# --- memory -------------------------------------------------------------------------------------


def _memory_plot(kinds: Sequence[Kind], name: str) -> list[Plot]:
    """Compiled and planned, kind by kind."""
    kinds = [one for one in kinds if max(one.held_bytes, one.planned_bytes) > 0]
    says = f"Compiled and planned: {'; '.join(map(_pair, kinds))}."
    shows = "Two bars for each kind of buffer: the compiled program's above, the plan's below."
    keys = [Key("━", BLUE, "compiled"), Key("━", MUTED, "planned")]
    height, margins = 52 * len(kinds) + 34, Margins(left=22, right=22, top=8, bottom=26)
    heading = "Memory of a device at its peak, by kind"
    return [plot(name, heading, shows, says, lambda axes: _draw(axes, kinds), height, margins, keys)]


def _pair(one: Kind) -> str:
    return f"{one.name} {bytes_text(one.held_bytes)} and {bytes_text(one.planned_bytes)}"


def _draw(axes: "Axes", kinds: Sequence[Kind]) -> None:
    for place, one in enumerate(kinds):
        axes.barh([place], [one.held_bytes / 1e9], height=0.24, color=BLUE)
        axes.barh([place + 0.26], [one.planned_bytes / 1e9], height=0.24, color=MUTED)
        axes.text(0, place - 0.2, _pair(one), color=INK, va="bottom", fontsize=12)
    axes.set_ylim(len(kinds) - 0.5, -0.65)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.xaxis.set_major_formatter("{x:g} GB")
