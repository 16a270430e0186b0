"""A compiled or traced step with its benchmark: whether it fits, its memory by kind, its traffic by axis. No I/O."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.compilation.breakdown import Breakdown, breakdown
from benchmarks.compilation.compiled import CompileReport, PeakBuffer, overlap
from benchmarks.model import capacity
from benchmarks.values import Benchmark, Model, Storage, Value

REST = "the layer at work"
# Kind of a buffer -> the parts of the formula that correspond to it (capacity.memory_by_part).
PARTS: dict[str, tuple[str, ...]] = {
    "weights": ("parameters",),
    "optimizer": ("optimizer",),
    "gradients": ("gradients",),
    "reordered weights": ("reordered_weights",),
    "kept activations": ("saved_activations",),
    "gathered weights": ("gathered_layers",),
    "vocabulary": ("logits", "gathered_head"),
    REST: ("pipelined_layers", "attention_scores", "workspace"),
}
MODEL, OPTIMIZER = "state['model']", "state['optimizer']"


class Kind(Value, frozen=True):
    """The memory of one kind on one device at the peak: as compiled or traced, and as planned."""

    name: str
    held_bytes: float
    planned_bytes: float


@dataclass(frozen=True)
class StepProgram:
    """A training step that was compiled (Program) or traced (TracedProgram) without a GPU, and its benchmark."""

    benchmark: Benchmark
    storage: Storage
    compiled: Any

    @property
    def peak_bytes(self) -> float:
        return float(self.compiled.peak_bytes)

    @property
    def usable_bytes(self) -> float | None:
        return capacity.usable_bytes(self.benchmark, self.storage)

    @property
    def fits(self) -> bool:
        return self.usable_bytes is None or self.peak_bytes <= self.usable_bytes

    @property
    def memory(self) -> list[Kind]:
        raise NotImplementedError

    def kinds(self, held: dict[str, float], parts: Mapping[str, Sequence[str]], rest: str) -> list[Kind]:
        """Return the memory of each kind: in `held`, and in the plan's `parts`. Other memory has the kind `rest`."""
        planned = capacity.memory_by_part(self.benchmark, self.storage)
        found = {name: sum(planned.pop(part, 0.0) for part in parts[name]) for name in held}
        found[rest] += sum(planned.values())
        more = {rest: held[rest] + self.peak_bytes - sum(held.values())}
        return [Kind(name=name, held_bytes=size, planned_bytes=found[name]) for name, size in (held | more).items()]


@dataclass(frozen=True)
class Program(StepProgram):
    compiled: CompileReport

    @property
    def peak_bytes(self) -> float:
        """The compiler's peak. It omits the memory space of ragged-all-to-all, which the sum of all includes."""
        compiled = self.compiled
        if not any(one.kind == "ragged-all-to-all" for one in overlap(compiled.schedule)):
            return compiled.peak_bytes
        made = compiled.temporary_bytes + compiled.output_bytes - compiled.aliased_bytes
        return max(compiled.peak_bytes, compiled.argument_bytes + made)

    @property
    def saves_memory(self) -> str:
        return "--set=remat_policy=full"

    @property
    def rank(self) -> tuple[bool, float, float]:
        return (not self.fits, self.exposed_bytes / self.benchmark.tokens_per_step, self.peak_bytes)

    @property
    def memory(self) -> list[Kind]:
        held = dict.fromkeys(PARTS, 0.0)
        for buffer in self.compiled.held:
            held[kind_of(buffer, self.benchmark)] += buffer.bytes
        return self.kinds(held, PARTS, REST)

    @property
    def breakdown(self) -> Breakdown:
        return breakdown(self.compiled.schedule, self.benchmark.hardware)

    @property
    def bytes_by_axis(self) -> dict[str, tuple[float, float]]:
        """Return axis -> (exposed bytes, hidden bytes) that a device sends in a step."""
        found: dict[str, tuple[float, float]] = {}
        for one in overlap(self.compiled.schedule):
            sent, axis = one.sent_bytes, " and ".join(one.axes)
            exposed, hidden = found.get(axis, (0.0, 0.0))
            found[axis] = (exposed, hidden + sent) if one.hidden else (exposed + sent, hidden)
        return {axis: both for axis, both in found.items() if sum(both)}

    @property
    def exposed_bytes(self) -> float:
        return sum(exposed for exposed, _ in self.bytes_by_axis.values())


# --- memory at the peak, by kind ----------------------------------------------------------------


def kind_of(buffer: PeakBuffer, benchmark: Benchmark) -> str:
    sizes = [int(size) for size in re.findall(r"\d+", buffer.shape.partition("[")[2])]
    every_layer = len(sizes) > 1 and not layer_counts(benchmark.model).isdisjoint(sizes)
    if buffer.argument:
        return "optimizer" if buffer.op.startswith(OPTIMIZER) else "weights" if buffer.op.startswith(MODEL) else REST
    if every_layer and buffer.op.startswith(MODEL):
        return "reordered weights"
    if every_layer:
        return "kept activations" if buffer.part == "forward" else "gradients"
    if benchmark.model.vocabulary_size in sizes:
        return "vocabulary"
    return "gathered weights" if buffer.instruction == "all-gather" else REST


def layer_counts(model: Model) -> set[int]:
    """Return the number of layers, of those with experts, and of the groups of layers with the same windows."""
    window = model.attention.window
    groups = {model.layers // window.global_every} if window else set()
    return {model.layers, *groups, *({model.layers - model.dense_layers} if model.experts else ())}


def place_of(buffer: PeakBuffer) -> str:
    """Return as text the layer and operation of the framework to which a buffer belongs."""
    if buffer.op.startswith("state["):
        path = [
            word for word in re.findall(r"'([^']+)'", buffer.op) if word not in ("model", "optimizer", "opt_state")
        ]
        return ".".join(path)
    operation = re.sub(r".*/", "", buffer.op).rstrip(")")
    where = " ".join(filter(None, [buffer.layer, operation if operation != buffer.layer else ""]))
    return ", ".join(filter(None, [where or buffer.name.partition("{")[0], buffer.part.replace("elsewhere", "")]))
