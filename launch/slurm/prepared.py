"""The plan of a cluster's job: before the backend's phases a check on one node, then the container on every node."""

import msgspec

from benchmarks.backend import Backend, Checks
from benchmarks.jobs.first_check import UNPACK
from benchmarks.values import Benchmark, JobOptions, Phase, Plan


def prepared(benchmark: Benchmark, backend: Backend, options: JobOptions, *, container: bool) -> Plan:
    """What the job runs, in order. `container`: whether its phases run in one."""
    plan = backend.plan(benchmark)
    check = backend.check_phase(benchmark) if options.check and isinstance(backend, Checks) else None
    before = [check] if check is not None else []
    if container and (benchmark.nodes > 1 or check is None):
        before.append(_unpack(benchmark))
    return msgspec.structs.replace(plan, phases=[*before, *plan.phases])


def _unpack(benchmark: Benchmark) -> Phase:
    """Pyxis unpacks the image on the nodes that have no container of the job's name yet. The phases and the sampler
    only join it: two that made it at once on one node would be in each other's way.
    """
    return Phase(
        name=UNPACK,
        command=["true"],
        environment={},
        nodes=benchmark.nodes,
        tasks_per_node=1,
        devices_per_task=0,
        writes_steps=False,
    )
