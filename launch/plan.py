"""Plan a run before you spend a GPU hour: memory, the shortest step time, an estimate, layouts and the cost.

    python launch/plan.py --backend=jax --model=llama2_70b --dtype=fp8 --hardware=h100 --gpus=64
        the default subcommand, `estimate`
    python launch/plan.py layouts --backend=nemo --model=llama31_70b --hardware=h100 --gpus=64

It starts nothing and needs no GPU. Exit codes: 0 done; 1 the compiler failed; 2 the request was wrong.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import contextlib
import sys
from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_VALID, RequestError, StepmarkError
from launch.cli import request_flags
from launch.cli.command import refuse_more
from launch.cli.subcommands import Subcommand, Subcommands
from launch.terminal.output import VERBOSE_FLAG, answer, verbose
from launch.terminal.progress import say

SCALE = flags.DEFINE_string("scale", None, "Numbers of GPUs, separated by commas. (default: from the recipe)")
TOKENS = flags.DEFINE_string("tokens", "1T", "Number of tokens to train on, for the cost: 1T, 300B or a number.")
PRICE = flags.DEFINE_float("price", None, "US dollars per GPU hour, for the cost.", 0.001, 10**6)
TOP = flags.DEFINE_integer("top", 5, "Number of layouts to show.", lower_bound=1)
FLAGS_AB = flags.DEFINE_string("flags_ab", None, "Variants of XLA's flags: 'NAME: --xla_... --xla_...; NAME: ...'.")
MAKE_ENVIRONMENT = flags.DEFINE_boolean(
    "make_environment", False, "If the environment is missing, make it first: 6 GB for MaxText, 2.1 GB for NeMo."
)
HTML = flags.DEFINE_string("html", None, "Also write an HTML page to this file.")
FIRST_FLAGS = ("backend", "model", "hardware", "gpus", "dtype", "scale", "tokens", "price", "top", "flags_ab", "html")


def estimate(argv: list[str]) -> int:
    """Show a step's memory, bound and estimate, how the step time scales, and the cost of the training.

        python launch/plan.py estimate --backend=jax --model=llama2_70b --dtype=fp8 --hardware=h100 --gpus=64
        python launch/plan.py estimate --backend=jax --model=llama2_70b --gpus=256 --tokens=15T --price=2.50
            GPU hours and dollars for 15T tokens
        python launch/plan.py estimate --backend=jax --model=llama2_70b --scale=64,256,1024
            the recipe on other numbers of GPUs

    A bound is the shortest time that a step can take at the fastest known matmul rate. An estimate is the time of
    the nearest published run, scaled by the ratio of the bounds. In this command, a flag marked * takes one value.
    """
    return _show(argv, most_layouts=0)


def layouts(argv: list[str]) -> int:
    """List the layouts with the shortest bounds for these GPUs, with the memory, traffic and command of each.

        python launch/plan.py layouts --backend=nemo --model=llama31_70b --hardware=h100 --gpus=64 --top=5

    In this command, a flag marked * takes one value.
    """
    return _show(argv, TOP.value)


def _show(argv: list[str], most_layouts: int) -> int:
    """Print the plan with the best `most_layouts` layouts. If `most_layouts` is 0, do not rank layouts."""
    from benchmarks.backend import find_backend
    from benchmarks.machine.refusals import of_memory
    from benchmarks.model.forecast import plan_report, token_count
    from benchmarks.model.forecast_report import report_text
    from benchmarks.model.layouts import layouts_command, with_layout
    from benchmarks.request.resolve import NoLayoutError, resolve
    from launch.machine import machine_gpus
    from launch.running.runners import note_other_recipes, refused_text
    from launch.terminal import places

    refuse_more(argv[1:], "python launch/plan.py --help")
    configs = places.configs()
    request, *more = request_flags.requests(configs.site(request_flags.site_name()))
    if more:
        raise RequestError(
            f"the flags name {1 + len(more)} benchmarks, but a plan is for one benchmark",
            why="pass one value in each flag, and --scale=64,128 for several numbers of GPUs",
        )
    backend = find_backend(request.backend)
    request = machine_gpus.with_local_gpus(request, configs, backend)
    try:
        benchmark = resolve(with_layout(request, configs, backend) if most_layouts else request, configs, backend)
    except NoLayoutError as missing:
        with contextlib.suppress(RequestError):
            missing.next_command = layouts_command(request, configs, backend)
        raise
    note_other_recipes(request, benchmark, configs)
    report = plan_report(
        request,
        benchmark,
        configs,
        backend,
        at_scales=_typed_scales(),
        tokens=token_count(TOKENS.value),
        price=PRICE.value,
        ranked=bool(most_layouts),
    )
    too_large = None if most_layouts else of_memory(benchmark, backend)
    notes, scales = backend.plan(benchmark).notes, SCALE.value is not None
    text = report_text(benchmark, report, notes, most_layouts, whole=verbose(), scales=scales)
    answer(report, "\n\n".join(filter(None, [refused_text(filter(None, [too_large])), text])))
    return EXIT_VALID


def _typed_scales() -> list[int]:
    from benchmarks.request.resolve import whole_number

    if SCALE.value is None:
        return []
    typed = [whole_number("scale", word.strip()) for word in SCALE.value.split(",")]
    if min(typed) < 1:
        raise RequestError(f"--scale={SCALE.value} needs at least 1 GPU", where="--scale")
    return sorted(set(typed))


def compiled(argv: list[str]) -> int:
    """Show the memory and collectives of a training step, and compare variants. This needs no GPU.

    XLA compiles MaxText's step. The step of NeMo and Megatron-Bridge runs with tensors that have no data.

        python launch/plan.py compile --backend=jax --model=llama2_70b --gpus=64
        python launch/plan.py compile --backend=jax --model=llama2_70b --gpus=64 \\
            --flags_ab="no overlap: --xla_gpu_enable_latency_hiding_scheduler=false"
            variants of XLA's flags compared with the plan
        python launch/plan.py compile --backend=jax --model=llama2_70b --gpus=64,512 --set=remat_policy=full,minimal
            variants of settings: every combination of the lists in flags
        python launch/plan.py compile --backend=jax --model=llama2_70b --gpus=64 --html=FILE.html
            a page with the memory, the collectives and the schedule of a layer
        python launch/plan.py compile --backend=nemo --model=llama3_70b --task=lora --hardware=h100 --gpus=8 \\
            --set=gradient_accumulation=16,32
            Megatron's step, and variants of it

    Exit codes: 0 compiled, and a program fits the device; 1 the compiler failed; 2 no program fits, or the request
    was wrong, such as an unknown XLA flag.
    """
    from benchmarks.backend import find_backend
    from benchmarks.compilation import variants
    from benchmarks.pages import html_pages
    from benchmarks.pages.compiled import compiled_parts
    from benchmarks.pages.page import page
    from benchmarks.request.resolve import resolve
    from launch.checks.compiling import compile_steps
    from launch.machine import machine_gpus
    from launch.terminal import places

    refuse_more(argv[1:], "python launch/plan.py compile --help")
    page_file = None if HTML.value is None else Path(HTML.value)
    if page_file is not None:
        html_pages.refuse_place(page_file)
    configs = places.configs()
    asked = variants.variant_requests(request_flags.requests(configs.site(request_flags.site_name())), FLAGS_AB.value)
    backend = find_backend(next(iter(asked.values())).backend)
    pgle = next((request.pgle for request in asked.values() if request.pgle != "off"), None)
    if pgle:
        raise RequestError(
            f"--pgle={pgle} records its profile on a GPU, and without a profile the compiled program differs",
            where=f"--pgle={pgle}",
            next_command="--pgle=off",
        )
    benchmarks = {
        name: resolve(machine_gpus.with_local_gpus(request, configs, backend), configs, backend)
        for name, request in asked.items()
    }
    outcomes = compile_steps(benchmarks, backend, make_environment=MAKE_ENVIRONMENT.value)
    failed = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, StepmarkError)}
    if len(failed) == len(outcomes):
        *others, last = failed.values()
        for error in others:
            print(error, file=sys.stderr)
        raise last
    programs = {
        name: variants.program_of(benchmarks[name], backend.storage(benchmarks[name]), outcome)
        for name, outcome in outcomes.items()
        if not isinstance(outcome, StepmarkError)
    }
    answer(variants.as_data(programs, failed), lambda: variants.text(programs, failed))
    if page_file is not None:
        html_pages.write_page(page(*compiled_parts(programs, failed)), page_file)
        say(f"page: {page_file}")
    too_large = variants.too_large(programs)
    for error in [*failed.values(), *([too_large] if too_large else [])]:
        print(error, file=sys.stderr)
    return variants.exit_code(programs, failed)


SUBCOMMANDS = Subcommands(
    "plan",
    __doc__,
    {
        "estimate": Subcommand(estimate, (SCALE, TOKENS, PRICE, VERBOSE_FLAG, request_flags), first=FIRST_FLAGS),
        "layouts": Subcommand(layouts, (TOP, SCALE, TOKENS, PRICE, VERBOSE_FLAG, request_flags), first=FIRST_FLAGS),
        "compile": Subcommand(compiled, (FLAGS_AB, MAKE_ENVIRONMENT, HTML, request_flags), first=FIRST_FLAGS),
    },
    lambda _: "estimate",
)

if __name__ == "__main__":
    SUBCOMMANDS.run()
