"""Benchmarks to plan with: a recipe of the checkout, changed by the tests."""

from typing import Any, TypeVar

import msgspec

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.model.bounds import Bound, bound
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Hardware, Parallelism, Rate, Storage, Value, changed_benchmark

CONFIGS = Configs()
AnyValue = TypeVar("AnyValue", bound=Value)


def recipe(backend: str = "jax", model: str = "llama2_70b", **asked: Any) -> Benchmark:
    return resolve(Request(backend=backend, model=model, **{"gpus": 64, **asked}), CONFIGS, find_backend(backend))


def changed(value: AnyValue, **fields: Any) -> AnyValue:
    if isinstance(value, Benchmark):
        return changed_benchmark(value, **fields)
    return msgspec.structs.replace(value, **fields)


def laid_out(benchmark: Benchmark, **axes: int) -> Benchmark:
    """The same global batch in another layout."""
    share = Parallelism(**axes)
    return changed(benchmark, parallelism=share, gpus=share.devices, nodes=max(1, share.devices // 8))


def storage_of(benchmark: Benchmark, **fields: Any) -> Storage:
    return msgspec.structs.replace(find_backend(benchmark.backend).storage(benchmark), **fields)


def bound_of(benchmark: Benchmark, **fields: Any) -> Bound:
    return bound(benchmark, storage_of(benchmark, **fields))


def with_rates(hardware: Hardware, **speeds: float) -> Hardware:
    """The same device with other connections, in GB/s; none but those."""
    rates = {name: Rate(gb_s=speed, source="a test") for name, speed in speeds.items()}
    return msgspec.structs.replace(hardware, rates=rates)
