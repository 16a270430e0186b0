"""The one benchmark that the flags name. Importing this module defines them."""

from benchmarks.backend import Backend, find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request
from benchmarks.sweeps import sweep
from launch.cli import refuse_more
from launch.command_line import request_flags
from launch.running import machine_gpus


def named(argv: list[str], configs: Configs) -> tuple[Request, Backend]:
    refuse_more(argv[1:], "python launch/plan.py --help")
    found = request_flags.requests(configs.site(request_flags.site_name()))
    if len(found) > 1:
        raise RequestError(
            f"{len(found)} benchmarks are named, one can be planned at a time",
            where=" ".join(sorted({word for label in sweep.labels(found) for word in label.split()})),
            why="several numbers of GPUs are given by --scale",
            next_command="one value in each flag; --scale=64,128 for several scales",
        )
    backend = find_backend(found[0].backend)
    return machine_gpus.settled(found[0], configs, backend), backend
