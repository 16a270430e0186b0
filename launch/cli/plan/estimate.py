"""Memory by part, the bound and the estimate of a step, how it scales, and what the training costs.

    python launch/plan.py estimate --backend=jax --model=llama2_70b --dtype=fp8 --hardware=h100 --gpus=64
    python launch/plan.py estimate --backend=jax --model=llama2_70b --gpus=256 --tokens=15T --price=2.50
        GPU hours and dollars for 15T tokens
    python launch/plan.py estimate --backend=jax --model=llama2_70b --scale=64,256,1024
        the recipe on other numbers of GPUs

A bound is the least that a step takes at the fastest matmul rate known; an estimate is the nearest published run,
scaled by the ratio of the bounds. A flag marked * takes one value here.
"""

from absl import flags

from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.model.forecast import plan_report, token_count
from benchmarks.model.forecast_report import plan_lines
from benchmarks.model.layouts import with_layout
from benchmarks.request.resolve import resolve, whole_number
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
    benchmark = resolve(with_layout(request, configs, backend) if most_layouts else request, configs, backend)
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
    answer(report, lambda: "\n".join(plan_lines(benchmark, report, most_layouts)))
    return EXIT_VALID


def _typed_scales() -> list[int]:
    if SCALE.value is None:
        return []
    typed = [whole_number("scale", word.strip()) for word in SCALE.value.split(",")]
    if min(typed) < 1:
        raise RequestError(f"--scale={SCALE.value}: 1 or more GPUs are needed", where="--scale")
    return sorted(set(typed))
