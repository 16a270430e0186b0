"""Makes the pictures of docs/explanation/compilation.md: Llama 2 70B's layers on 64 H100.

.venv/bin/python docs/make_compiled_pictures.py

Needs MaxText's environment with JAX's CUDA plugin (made by the first plan.py compile), and no GPU. A program takes
about a minute to compile.
"""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.backend import find_backend  # noqa: E402
from benchmarks.compilation.compiled import CompileReport  # noqa: E402
from benchmarks.compilation.program import Program  # noqa: E402
from benchmarks.pages.page import HERE  # noqa: E402
from benchmarks.pages.schedule_picture import schedule_plot  # noqa: E402
from benchmarks.request.resolve import Request, resolve  # noqa: E402
from launch.checks.compiling import compile_steps  # noqa: E402
from launch.terminal import places  # noqa: E402

PICTURES = REPOSITORY / "docs" / "pictures"
DTYPES = ("bf16", "fp8")
MARGIN = 16


def main() -> None:
    configs, backend = places.configs(), find_backend("jax")
    benchmarks = {
        dtype: resolve(Request(backend="jax", model="llama2_70b", dtype=dtype, gpus=64), configs, backend)
        for dtype in DTYPES
    }
    for dtype, outcome in compile_steps(benchmarks, backend).items():
        if not isinstance(outcome, CompileReport):
            raise outcome
        program = Program(benchmarks[dtype], backend.storage(benchmarks[dtype]), outcome)
        (plot,) = schedule_plot(program.benchmark, outcome.schedule, program.breakdown.loops, "schedule")
        path = PICTURES / f"schedule-llama2-70b-{dtype}.svg"
        path.write_text(standalone(str(plot.svg)), encoding="utf-8")
        print(f"{path.relative_to(REPOSITORY)}: {path.stat().st_size / 1000:.0f} kB")


def standalone(drawing: str) -> str:
    """Return a separate file with the colours for light and dark."""
    css = (HERE / "page.css").read_text(encoding="utf-8")
    palette = css[css.index(":root {") : css.index("*, *::before")]
    width, height = (float(number) for number in drawing.split('viewBox="0 0 ')[1].split('"', maxsplit=1)[0].split())
    box = f"{-MARGIN} {-MARGIN} {width + 2 * MARGIN:g} {height + 2 * MARGIN:g}"
    paper = f'<rect x="{-MARGIN}" y="{-MARGIN}" width="100%" height="100%" rx="8" style="fill:var(--paper)"/>'
    style = f"<style>{palette}text {{ font-family: var(--sans); }}</style>"
    opened = drawing.replace('<svg class="drawing"', '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    head, rest = opened.replace(f"0 0 {width:g} {height:g}", box, 1).split("</desc>", 1)
    return f"{head}</desc>{style}{paper}{rest}\n"


if __name__ == "__main__":
    main()
