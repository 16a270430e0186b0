"""Memory by part, the bound and the estimate of a step, how it scales, and what the training costs.

    python launch/plan.py estimate --backend=jax --model=llama2_70b --dtype=fp8 --hardware=h100 --gpus=64
    python launch/plan.py estimate --backend=jax --model=llama2_70b --gpus=256 --tokens=15T --price=2.50
        GPU hours and dollars for 15T tokens
    python launch/plan.py estimate --backend=jax --model=llama2_70b --scale=64,256,1024
        the recipe on other numbers of GPUs

A bound is the least that a step takes at the fastest matmul rate known; an estimate is the nearest published run,
scaled by the ratio of the bounds. A flag marked * takes one value here.
"""

import msgspec
from absl import flags

from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.model import forecast
from benchmarks.model.estimate import read_published
from benchmarks.model.forecast_report import plan_lines
from benchmarks.model.layouts import rank
from benchmarks.model.seeding import with_layout
from benchmarks.request import flag_lists
from benchmarks.request.resolve import Request, resolve, scales
from benchmarks.values import Benchmark
from launch.cli import request_flags
from launch.terminal import places
from launch.terminal.output import answer

HEADING = "Flags of an estimate"

SCALE = flags.DEFINE_string("scale", None, "Numbers of GPUs, with commas; else those that the recipe is made for.")
TOKENS = flags.DEFINE_string("tokens", "1T", "What to train on, for the cost: 1T, 300B or a number.")
PRICE = flags.DEFINE_float("price", None, "US dollars a GPU hour, for the cost.")
flags.adopt_module_key_flags(request_flags)


def main(argv: list[str]) -> int:
    return show(argv, most_layouts=0)


def show(argv: list[str], most_layouts: int) -> int:
    """With as many of the best layouts; 0: without ranking them."""
    if PRICE.value is not None and not 0 < PRICE.value < float("inf"):
        raise RequestError(
            f"--price={PRICE.value:g}: it must be above 0", where="--price", next_command="--price=2.5"
        )
    configs = places.configs()
    request, backend = request_flags.one(argv[1:], configs)
    laid_out = with_layout(request, configs, backend) if most_layouts else request
    benchmark = resolve(laid_out, configs, backend)
    report = _report(request, laid_out, benchmark, configs, backend, ranked=bool(most_layouts))
    answer(report, lambda: "\n".join(plan_lines(benchmark, report, most_layouts)))
    return EXIT_VALID


def _report(
    request: Request, laid_out: Request, benchmark: Benchmark, configs: Configs, backend: Backend, *, ranked: bool
) -> forecast.PlanReport:
    """Other scales are of the request as it was typed; layouts begin with the one that it was given."""
    published = read_published(configs)
    tokens = forecast.token_count(TOKENS.value)
    found = forecast.forecast(benchmark, backend.storage(benchmark), published)
    return forecast.PlanReport(
        **msgspec.structs.asdict(found),
        benchmark=forecast.planned(benchmark),
        scaling=forecast.scaling(
            request,
            _scales(request, benchmark, configs, backend),
            lambda asked: resolve(with_layout(asked, configs, backend), configs, backend),
            backend,
            published,
        ),
        cost=forecast.cost(benchmark, found, tokens, PRICE.value),
        layouts=rank(laid_out, configs, backend) if ranked else None,
        other_recipes=[] if request.recipe else _other_recipes(benchmark, configs),
    )


def _other_recipes(benchmark: Benchmark, configs: Configs) -> list[str]:
    work = (benchmark.engine, benchmark.task)
    return [
        f"{one.name} ({one.sequence_length} tokens a sequence)"
        for one in configs.recipes(benchmark.backend)
        if (one.engine, one.task) == work and one.name != benchmark.recipe.name
        if benchmark.model.name in one.models and benchmark.dtype in one.dtypes.get(benchmark.hardware.name, [])
    ]


def _scales(request: Request, benchmark: Benchmark, configs: Configs, backend: Backend) -> list[int]:
    """As typed; else the recipe's own, and this one. A layout that was stated by --set is for one scale alone."""
    if SCALE.value is not None:
        typed = [flag_lists.number("scale", word.strip()) for word in SCALE.value.split(",")]
        if min(typed) < 1:
            raise RequestError(f"--scale={SCALE.value}: 1 or more GPUs are needed", where="--scale")
        return sorted(set(typed))
    if backend.layout_settings & request.settings.keys():
        return [benchmark.gpus]
    return sorted({benchmark.gpus, *scales(configs.recipe(benchmark.recipe.name), benchmark.hardware)})
