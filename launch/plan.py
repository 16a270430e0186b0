"""What a run needs and takes, before a GPU hour is spent: memory, the least time, an estimate, layouts and the cost.

Examples:
  python launch/plan.py --backend=jax --model=llama2_70b --dtype=fp8 --hardware=h100 --gpus=64
      memory of a GPU by part, the bound and the estimate of a step, how it scales, what 1T tokens take
  python launch/plan.py --backend=nemo --model=llama31_70b --hardware=h100 --gpus=64 --layouts --top=5
      the best layouts for these GPUs, each with what puts it before the next and the command that runs it
  python launch/plan.py --backend=jax --model=llama2_70b --gpus=256 --tokens=15T --price=2.50
      GPU hours and dollars for 15T tokens
  python launch/plan.py --backend=jax --model=llama2_70b --scale=64,256,1024
      the recipe on other numbers of GPUs
  python launch/plan.py --backend=jax --model=llama2_70b --gpus=64 --compile
      the program itself, compiled here for as many virtual devices: its FLOPs and collectives against the formulas
  python launch/plan.py --mlperf_config=config_DGXH100_1x8x4xtp4pp1cp1.sh --mlperf_benchmark=llama2_70b_lora
      one of NVIDIA's MLPerf configurations held against the rules, with the arithmetic
  python launch/plan.py --calibration
      every published run beside its bound and its estimate, and how good estimates are

A bound is the least that a step takes at the fastest matmul rate known; an estimate is what published runs of the
same framework came to. Nothing is started and no GPU is needed. A flag marked * takes one value here. Exit codes:
0 done; 2 the request was wrong, or MLPerf's rules refuse a configuration; 3 a compiled program holds what no formula
explains.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.backend import Backend, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.planning import forecast
from benchmarks.planning.forecast_report import plan_lines
from benchmarks.planning.layouts import rank
from benchmarks.planning.read_once import ReadOnce
from benchmarks.planning.seeding import with_layout
from benchmarks.request.resolve import Request, resolve, scales
from benchmarks.sweeps import sweep
from benchmarks.values import Benchmark, json_text
from launch.cli import run_main
from launch.command_line import places, request_flags
from launch.planning import planning_calibration
from launch.running import machine_gpus

FLAGS = flags.FLAGS
SCALE = flags.DEFINE_string("scale", None, "Numbers of GPUs, with commas; else those that the recipe is made for.")
LAYOUTS = flags.DEFINE_boolean("layouts", False, "Rank all layouts of these GPUs that work and fit.")
TOP = flags.DEFINE_integer("top", 5, "How many layouts to show.", lower_bound=1)
TOKENS = flags.DEFINE_string("tokens", "1T", "What to train on, for the cost: 1T, 300B or a number.")
PRICE = flags.DEFINE_float("price", None, "US dollars a GPU hour, for the cost.")
JSON = flags.DEFINE_boolean("json", False, "JSON instead of text.")
COMPILE = flags.DEFINE_boolean("compile", False, "Compile the program here and count what is in it.")
CALIBRATION = flags.DEFINE_boolean("calibration", False, "Show how estimates are made, and how far they are off.")
WRITE = flags.DEFINE_boolean(
    "write", False, "With --calibration: keep the fits in configs/calibration.yml, after rows or formulas changed."
)
MLPERF_CONFIG = flags.DEFINE_string("mlperf_config", None, "A config_*.sh of NVIDIA's MLPerf submissions to look at.")
MLPERF_BENCHMARK = flags.DEFINE_string(
    "mlperf_benchmark", None, "Its benchmark: llama2_70b_lora, llama31_8b or flux1; as its variables say else."
)
flags.adopt_module_key_flags(request_flags)


def main(argv: list[str]) -> int:
    if len(argv) > 1:
        raise RequestError(
            f"unexpected argument '{argv[1]}'",
            why="everything is said by flags",
            next_command="python launch/plan.py --help",
        )
    configs = places.configs()
    _refuse_flags()
    if MLPERF_CONFIG.value is not None:
        from launch.mlperf.config_check import show

        return show(Path(MLPERF_CONFIG.value), MLPERF_BENCHMARK.value, configs)
    if CALIBRATION.value:
        return planning_calibration.show(configs, as_json=JSON.value, write=WRITE.value)
    request = _request(configs)
    backend = find_backend(request.backend)
    request = machine_gpus.settled(request, configs, backend)
    laid_out = with_layout(request, configs, backend) if LAYOUTS.value else request
    benchmark = resolve(laid_out, configs, backend)
    if COMPILE.value:
        from launch.planning.compiling import compile_and_show

        return int(compile_and_show(benchmark, backend, JSON.value))
    report = _report(request, laid_out, benchmark, configs, backend)
    print(json_text(report) if JSON.value else "\n".join(plan_lines(benchmark, report, TOP.value)))
    return EXIT_VALID


def _refuse_flags() -> None:
    if MLPERF_BENCHMARK.value is not None and MLPERF_CONFIG.value is None:
        raise RequestError(
            "--mlperf_benchmark says what an --mlperf_config is of",
            where="--mlperf_benchmark",
            next_command="--mlperf_config=FILE; or python launch/run.py --task=mlperf --model=NAME --dry_run",
        )
    if MLPERF_CONFIG.value is not None:
        named = [flag.name for flag in FLAGS.get_flags_for_module(request_flags)]
        others = [SCALE, LAYOUTS, TOP, TOKENS, PRICE, JSON, COMPILE, CALIBRATION, WRITE]
        _refuse_beside(MLPERF_CONFIG, [*others, *(FLAGS[name] for name in named)])
    if CALIBRATION.value:
        named = [flag.name for flag in FLAGS.get_flags_for_module(request_flags)]
        _refuse_beside(CALIBRATION, [SCALE, LAYOUTS, TOP, TOKENS, PRICE, COMPILE, *(FLAGS[name] for name in named)])
    if COMPILE.value:
        _refuse_beside(COMPILE, [SCALE, LAYOUTS, TOP, TOKENS, PRICE])
    if WRITE.value and not CALIBRATION.value:
        raise RequestError("--write needs --calibration", where="--write", next_command="--calibration --write")
    if PRICE.value is not None and not 0 < PRICE.value < float("inf"):
        raise RequestError(
            f"--price={PRICE.value:g}: it must be above 0", where="--price", next_command="--price=2.5"
        )


def _refuse_beside(chosen: flags.FlagHolder[Any], unused: Sequence[flags.FlagHolder[Any] | flags.Flag[Any]]) -> None:
    """A flag that would go unused is a mistake."""
    surplus = sorted(flag.name for flag in unused if FLAGS[flag.name].present)
    if surplus:
        raise RequestError(
            f"--{chosen.name} does not use --{surplus[0]}",
            where=" ".join(f"--{name}" for name in surplus),
            why="it shows something else",
            next_command=f"--{chosen.name} without {'these' if surplus[1:] else 'it'}",
        )


def _request(configs: Configs) -> Request:
    found = request_flags.requests(configs.site(request_flags.site_name()))
    if len(found) > 1:
        raise RequestError(
            f"{len(found)} benchmarks are named, one can be planned at a time",
            where=" ".join(sorted({word for label in sweep.labels(found) for word in label.split()})),
            why="several numbers of GPUs are given by --scale",
            next_command="one value in each flag; --scale=64,128 for several scales",
        )
    return found[0]


def _report(
    request: Request, laid_out: Request, benchmark: Benchmark, configs: Configs, backend: Backend
) -> forecast.PlanReport:
    """Other scales are of the request as it was typed; layouts begin with the one that it was given."""
    calibration = planning_calibration.kept(configs)
    tokens = forecast.token_count(TOKENS.value)
    found = forecast.forecast(benchmark, backend.storage(benchmark), calibration)
    known = ReadOnce(configs)
    return forecast.PlanReport(
        schema_version=forecast.SCHEMA_VERSION,
        benchmark=forecast.named(benchmark),
        memory=found.memory,
        bound=found.bound,
        estimate=found.estimate,
        scaling=forecast.scaling(
            request,
            _scales(request, benchmark, configs, backend),
            lambda asked: resolve(with_layout(asked, known, backend), known, backend),
            backend,
            calibration,
        ),
        cost=forecast.cost(benchmark, found, tokens, PRICE.value),
        layouts=rank(laid_out, configs, backend, calibration) if LAYOUTS.value else None,
    )


def _scales(request: Request, benchmark: Benchmark, configs: Configs, backend: Backend) -> list[int]:
    """As typed; else the recipe's own, and this one. A layout that was stated by --set is for one scale alone."""
    if SCALE.value is not None:
        typed = [sweep.number("scale", word.strip()) for word in SCALE.value.split(",")]
        if min(typed) < 1:
            raise RequestError(f"--scale={SCALE.value}: 1 or more GPUs are needed", where="--scale")
        return sorted(set(typed))
    if backend.layout_settings & request.settings.keys():
        return [benchmark.gpus]
    return sorted({benchmark.gpus, *scales(configs.recipe(benchmark.recipe.name), benchmark.hardware)})


if __name__ == "__main__":
    run_main(main)
