"""Compiles a benchmark's training step on this machine, without its hardware, and holds it against the formulas."""

import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.backend import Backend, CompilesAlone
from benchmarks.compilation import compiled_report
from benchmarks.compilation.compiled import Compiled, not_explained
from benchmarks.compilation.compiled_check import compare
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.values import Benchmark
from launch.checks.compile_check import refuse_to_compile
from launch.running.side_program import removed_on_interrupt, run_side_program

FOLDER = "compile"


def compile_and_show(benchmark: Benchmark, backend: Backend, *, as_json: bool, make_environment: bool) -> int:
    """The exit code: 3 where the program holds something that no formula and no named cause explains."""
    compiled = compile_step(benchmark, backend, make_environment=make_environment)
    storage = backend.storage(benchmark)
    lines = compare(benchmark, storage, compiled)
    if as_json:
        print(compiled_report.comparison_json(benchmark, compiled, lines))
    else:
        print(compiled_report.comparison_text(benchmark, storage, compiled, lines))
    return EXIT_INVALID if not_explained(lines, compiled) else EXIT_VALID


def compile_step(benchmark: Benchmark, backend: Backend, *, make_environment: bool = False) -> Compiled:
    if not isinstance(backend, CompilesAlone):
        raise RequestError(
            f"{backend.title} has no program that can be compiled without its hardware",
            where=f"compile --backend={benchmark.backend}",
            why="only a compiler that takes a whole training step at once says what is in it",
            next_command="python launch/plan.py compile --backend=jax --model=llama2_70b --hardware=h100, say",
        )
    program = backend.compile_program(benchmark)
    refuse_to_compile(benchmark, backend, program, make_environment=make_environment)
    print(f"compiling for {benchmark.gpus} x {benchmark.hardware.title}", file=sys.stderr, flush=True)
    place = Path(tempfile.mkdtemp(prefix="stepmark-"))
    with removed_on_interrupt(place):
        compiled = run_side_program(backend, benchmark.engine, program, place / FOLDER, Compiled)
    shutil.rmtree(place, ignore_errors=True)  # only of what went well: else its log is what there is to read
    return compiled
