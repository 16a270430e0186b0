"""Compile the program on this machine: its FLOPs and collectives against the formulas.

    python launch/plan.py compile --backend=jax --model=llama2_70b --gpus=64

A flag marked * takes one value here. Exit code 3: the program holds what no formula explains.
"""

from absl import flags

from benchmarks.request.resolve import resolve
from launch.command_line import places, request_flags
from launch.planning.compiling import compile_and_show

JSON = flags.DEFINE_boolean("json", False, "JSON instead of text.")
MAKE_ENVIRONMENT = flags.DEFINE_boolean(
    "make_environment", False, "First install the compiler for GPUs where it is missing: about 6 GB."
)
flags.adopt_module_key_flags(request_flags)


def main(argv: list[str]) -> int:
    configs = places.configs()
    request, backend = request_flags.one(argv[1:], configs)
    benchmark = resolve(request, configs, backend)
    return compile_and_show(benchmark, backend, as_json=JSON.value, make_environment=MAKE_ENVIRONMENT.value)
