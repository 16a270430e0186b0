"""One of NVIDIA's MLPerf configurations checked against the rules, with the arithmetic.

    python launch/plan.py mlperf config_DGXH100_1x8x4xtp4pp1cp1.sh --benchmark=llama2_70b_lora

Exit code 2: MLPerf's rules refuse the configuration.
"""

from pathlib import Path

from absl import flags

from launch.cli import only_argument
from launch.command_line import places
from launch.mlperf.config_check import show

BENCHMARK = flags.DEFINE_string("benchmark", None, "Its benchmark: llama2_70b_lora, llama31_8b or flux1.")
flags.DEFINE_alias("mlperf_benchmark", "benchmark")  # as version 0.8 called it


def main(argv: list[str]) -> int:
    path = Path(only_argument(argv[1:], "python launch/plan.py mlperf FILE"))
    return show(path, BENCHMARK.value, places.configs())
