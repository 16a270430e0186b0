"""A compiled step beside the benchmark that it was compiled from: whether it fits, what it sends, how it agrees."""

from typing import NamedTuple

from benchmarks.compilation.compiled import Compiled, Line, not_explained
from benchmarks.compilation.compiled_check import compare
from benchmarks.compilation.held import Kind, kinds
from benchmarks.compilation.overlap import overlap
from benchmarks.compilation.walk import Walked, rates_of, walk
from benchmarks.errors import RequestError
from benchmarks.model import capacity
from benchmarks.values import Benchmark, Storage


class Program(NamedTuple):
    benchmark: Benchmark
    storage: Storage
    compiled: Compiled

    @property
    def usable_bytes(self) -> float | None:
        return capacity.usable_bytes(self.benchmark, self.storage)

    @property
    def fits(self) -> bool:
        return self.usable_bytes is None or self.compiled.peak_bytes <= self.usable_bytes

    @property
    def memory(self) -> list[Kind]:
        return kinds(self.benchmark, self.compiled, capacity.memory_by_part(self.benchmark, self.storage))

    @property
    def lines(self) -> list[Line]:
        """Each figure of the program that a formula predicts."""
        return compare(self.benchmark, self.storage, self.compiled)

    @property
    def not_explained(self) -> list[str]:
        return not_explained(self.lines, self.compiled)

    @property
    def walked(self) -> Walked:
        """Of no seconds, with the reason, where the device's rates are not known."""
        try:
            rates = rates_of(self.benchmark.hardware)
        except RequestError as unknown:
            return Walked(seconds=0.0, spent={}, exchanged=[], loops={}, notes=[f"{unknown.what}: {unknown.where}"])
        return walk(self.compiled.schedule, rates)

    @property
    def bytes_by_axis(self) -> dict[str, tuple[float, float]]:
        """Axis -> exposed and hidden bytes that a device sends in a step."""
        found: dict[str, tuple[float, float]] = {}
        for one in overlap(self.compiled.schedule):
            sent, axis = one.wire_bytes * one.times, " and ".join(one.axes)
            exposed, hidden = found.get(axis, (0.0, 0.0))
            found[axis] = (exposed, hidden + sent) if one.hidden else (exposed + sent, hidden)
        return {axis: both for axis, both in found.items() if sum(both)}

    @property
    def exposed_bytes(self) -> float:
        return sum(exposed for exposed, _ in self.bytes_by_axis.values())
