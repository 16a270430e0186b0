"""A compiled program's page has what the text report has, and pictures of its memory and its schedule."""

import re
from html import unescape
from typing import Any

from benchmarks.compilation import compiled_report, variants
from benchmarks.compilation.compiled import CompileReport, Operation, PeakBuffer, Schedule
from benchmarks.compilation.program import Program
from benchmarks.errors import RunError
from benchmarks.pages.compiled import compiled_parts
from benchmarks.pages.page import page
from benchmarks.text import Grid
from jax_backend import BACKEND
from tests.benchmarks.pages.test_schedule_picture import BACKWARD, SCHEDULE
from tests.benchmarks.planned import changed, recipe

GATHER: dict[str, Any] = {"what": "collective", "kind": "all-gather", "axes": ["fsdp"], "part": "forward"}
FORWARD = [
    Operation(name="gather", event="start", bytes=1e9, wire_bytes=1e9, group_size=64, group_nodes=8, **GATHER),
    Operation(name="mlp", what="matmul", layer="MlpBlock", flops=3e12, dtype="bf16", part="forward"),
    Operation(name="gathered", event="done", of="gather", **GATHER),
]
STACK = PeakBuffer(
    bytes=10.7e9,
    shape="bf16[80,2,4096,8192]",
    name="stack",
    instruction="fusion",
    op="jvp()/while/body/dynamic_update_slice",
    layer="",
    part="forward",
    argument=False,
)


def program(peak_gb: float = 64.0, **fields: Any) -> Program:
    schedule = Schedule(entry="main", computations={**SCHEDULE.computations, "up": FORWARD, "down": BACKWARD})
    benchmark = recipe()
    compiled = CompileReport(
        versions={"jax": "0.12.0", "maxtext": "0.2.5"},
        devices=64,
        target="NVIDIA H100 80GB HBM3",
        flags="--xla_gpu_enable_latency_hiding_scheduler=true",
        mesh={"fsdp": 64},
        parameters=68_976_648_192,
        argument_bytes=12.93e9,
        temporary_bytes=50.95e9,
        output_bytes=12.93e9,
        aliased_bytes=12.93e9,
        peak_bytes=peak_gb * 1e9,
        held=[STACK],
        schedule=schedule,
        step_sha256="5" * 64,
        program_sha256="9" * 64,
    )
    return Program(benchmark, BACKEND.storage(benchmark), changed(compiled, **fields))


def shown(html: str) -> str:
    """The text of a page."""
    return " ".join(unescape(re.sub(r"<style.*?</style>|<[^>]+>", " ", html, flags=re.DOTALL)).split())


def assert_has(grid: Grid, text: str) -> None:
    assert grid.rows
    missing = [cell for row in grid.rows for cell in row if " ".join(cell.split()) not in text]
    assert missing == []


def test_the_page_has_every_row_of_the_text_report() -> None:
    compiled = program()
    text = shown(page(*compiled_parts({"as planned": compiled}, {})))
    schedule = compiled.compiled.schedule
    for grid in (
        compiled_report.memory_grid(compiled),
        compiled_report.buffers_grid(compiled),
        compiled_report.collectives_grid(schedule),
        compiled_report.kernels_grid(schedule),
        compiled_report.time_grid(compiled.breakdown),
    ):
        assert_has(grid, text)
    assert "Forward: 2 layers" in text


def test_a_program_that_does_not_fit_says_so_first() -> None:
    (part,) = compiled_parts({"": program(peak_gb=90.0)}, {})
    assert (part.verdict, part.tone) == ("does not fit", "bad")
    assert "90.00 GB" in shown(page(part)).partition("Memory")[0]


def test_variants_are_compared_before_each_is_shown_and_one_that_failed_is_named() -> None:
    programs = {"as planned": program(), "eager": program(peak_gb=70.0, program_sha256="8" * 64)}
    first, *others = compiled_parts(programs, {"odd flag": RunError("odd flag: the compiler failed")})
    assert (first.verdict, first.tone) == ("2 of 3 fit", "warm")
    assert [part.heading for part in others] == ["as planned", "eager"]
    html = page(first, *others)
    assert_has(variants.grid(programs), shown(html))
    assert "odd flag: the compiler failed" in shown(html)
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
