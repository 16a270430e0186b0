"""Compile the training step for its GPUs on this machine, which needs none: memory, collectives, and flags compared.

    python launch/plan.py compile --backend=jax --model=llama2_70b --gpus=64
    python launch/plan.py compile --backend=jax --model=llama2_70b --gpus=64 \\
        --flags_ab="no overlap: --xla_gpu_enable_latency_hiding_scheduler=false"
        variants of XLA's flags beside the plan
    python launch/plan.py compile --backend=jax --model=llama2_70b --gpus=64,512 --set=remat_policy=full,minimal
        and of settings: every combination of what the flags list with commas
    python launch/plan.py compile --backend=jax --model=llama2_70b --gpus=64 --html=FILE.html
        a page with the memory, the collectives and the schedule of a layer

Exit codes: 0 compiled, and it fits; 2 no program fits the device, or the request was wrong, such as an unknown XLA
flag; 1 the compiler failed.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from benchmarks.backend import Backend, find_backend
from benchmarks.compilation import compiled_report, variants
from benchmarks.compilation.program import Program
from benchmarks.configs import Configs
from benchmarks.errors import OtherGpus, RequestError, StepmarkError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark
from launch.checks.compiling import compile_steps
from launch.cli import request_flags
from launch.cli.command import refuse_more
from launch.machine import machine_gpus
from launch.terminal import places, progress
from launch.terminal.output import answer

FLAGS_AB = flags.DEFINE_string("flags_ab", None, "Variants of XLA's flags: 'NAME: --xla_... --xla_...; NAME: ...'.")
MAKE_ENVIRONMENT = flags.DEFINE_boolean(
    "make_environment", False, "First install the compiler for GPUs where it is missing: about 6 GB."
)
HTML = flags.DEFINE_string("html", None, "Write a page with all of it to this file too.")
flags.adopt_module_key_flags(request_flags)


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/plan.py compile --help")
    page_file = _page_file()
    configs = places.configs()
    asked = variants.named(request_flags.requests(configs.site(request_flags.site_name())), FLAGS_AB.value)
    backend = find_backend(next(iter(asked.values())).backend)
    benchmarks = _resolved(asked, configs, backend)
    _refuse_pgle(benchmarks)
    outcomes = compile_steps(benchmarks, backend, make_environment=MAKE_ENVIRONMENT.value)
    failed = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, StepmarkError)}
    if len(failed) == len(outcomes):
        *others, last = failed.values()
        for error in others:
            print(error, file=sys.stderr)
        raise last
    programs = {
        name: Program(benchmarks[name], backend.storage(benchmarks[name]), outcome)
        for name, outcome in outcomes.items()
        if not isinstance(outcome, StepmarkError)
    }
    one = next(iter(programs.values()))
    answer(
        variants.as_data(programs, failed),
        lambda: variants.text(programs, failed) if len(outcomes) > 1 else compiled_report.text(one),
    )
    if page_file is not None:
        _write_page(programs, failed, page_file)
    too_large = variants.too_large(programs)
    for error in [*failed.values(), *([too_large] if too_large else [])]:
        print(error, file=sys.stderr)
    return variants.exit_code(programs, failed)


def _resolved(asked: Mapping[str, Request], configs: Configs, backend: Backend) -> dict[str, Benchmark]:
    """Of lists that share out the same GPUs, some combinations are for other numbers: these are left out."""
    benchmarks, left_out = {}, []
    for name, request in asked.items():
        try:
            benchmarks[name] = resolve(machine_gpus.with_local_gpus(request, configs, backend), configs, backend)
        except OtherGpus:
            left_out.append(name)
            if len(left_out) == len(asked):
                raise
    if left_out:
        progress.say(f"left out, because their layouts are for another number of GPUs: {'; '.join(left_out)}")
    return benchmarks


def _refuse_pgle(benchmarks: Mapping[str, Benchmark]) -> None:
    for benchmark in benchmarks.values():
        pgle = benchmark.instruments.pgle
        if pgle != "off":
            raise RequestError(
                f"--pgle={pgle} records its profile on a GPU; without one the program would be another",
                where=f"--pgle={pgle}",
                next_command="--pgle=off",
            )


def _page_file() -> Path | None:
    """Refused before anything is compiled where no page can be written."""
    if HTML.value is None:
        return None
    from benchmarks.pages import html_pages

    html_pages.refuse_place(Path(HTML.value))
    return Path(HTML.value)


def _write_page(programs: Mapping[str, Program], failed: Mapping[str, StepmarkError], place: Path) -> None:
    from benchmarks.pages import html_pages
    from benchmarks.pages.compiled import compiled_parts
    from benchmarks.pages.page import page

    html_pages.write_page(page(*compiled_parts(programs, failed)), place)
    print(f"stepmark: {place}", file=sys.stderr)
