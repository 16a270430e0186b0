"""The layouts for these GPUs with the least bounds: memory, traffic and the commands that run them.

    python launch/plan.py layouts --backend=nemo --model=llama31_70b --hardware=h100 --gpus=64 --top=5

A flag marked * takes one value here.
"""

from absl import flags

from launch.cli import request_flags
from launch.cli.plan import estimate

TOP = flags.DEFINE_integer("top", 5, "How many layouts to show.", lower_bound=1)
flags.adopt_module_key_flags(estimate)
flags.adopt_module_key_flags(request_flags)


def main(argv: list[str]) -> int:
    return estimate.show(argv, TOP.value)
