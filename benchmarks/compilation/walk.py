"""Where the time of a compiled step goes: its schedule, walked with the rates of a device.

Compute, communication and a side stream each do one thing at a time, in the order of the schedule; what starts on
another stream is waited for at its done. Rates are published ones and nothing is fitted, so the result is a breakdown
and an order of variants. It is no prediction of a step's seconds: it knows no autotuning, no contention between
collectives and matmuls, no power limit and no slow node.
"""

from collections import defaultdict
from collections.abc import Iterator
from math import log2

import msgspec

from benchmarks.compilation.schedule import Operation, Schedule
from benchmarks.errors import RequestError
from benchmarks.values import Hardware, Value

# FlashAttention-3 (arXiv 2407.08608), figures 5 and 6: cuDNN on an H100 SXM5, head dimension 128, sequences of 4,096
# tokens: 518 TFLOP/s forward with a causal mask, 499 backward; the peak is 989.
ATTENTION_SHARES = {"forward": 518 / 989, "backward": 499 / 989}
MEASURED_ATTENTION = ("h100", "h200")  # one chip, with different memory

# NVIDIA's blog, "Getting Started with CUDA Graphs": kernels of 2.9 us take 3.8 us each, launched one behind another.
KERNEL_GAP_SECONDS = 0.9e-6

# NCCL at June 2026, ncclTunerConstantsDefaults of src/graph/tuning.cc, protocol Simple: the base latency of a ring,
# and of each hop in a ring or a tree.
RING_SECONDS = 8.4e-6
RING_HOP_SECONDS, RING_NETWORK_HOP_SECONDS = 3.4e-6, 14e-6
TREE_HOP_SECONDS, TREE_NETWORK_HOP_SECONDS = 4.0e-6, 14e-6

STEADY_TRIPS = 4  # of a loop are walked; every further trip takes as long as the last of them
EXPOSED = "exposed communication"
UNKNOWN = "autotuning, NCCL's algorithms, contention, power and slow nodes are not in it"
SIDE = "waiting for the side stream"


# --- rates --------------------------------------------------------------------------------------


class Rates(Value, frozen=True):
    """What a device reaches. FLOPs and bytes a second."""

    matmul_flops: dict[str, float]  # precision -> achievable
    attention_flops: dict[str, float]  # forward, backward
    memory_bytes: float
    node_bytes: float
    network_bytes: float
    notes: list[str] = []  # what is assumed


def rates_of(hardware: Hardware) -> Rates:
    """From configs/hardware; RequestError where a rate that every step needs is not known."""
    if not hardware.achievable or "bf16" not in hardware.peaks:
        raise _unknown(hardware, "achievable", "the rate that its matmuls reach")
    peak = hardware.peaks["bf16"].tflops * 1e12
    carried_over = f"attention reaches the share of the peak that cuDNN does on an H100, also on {hardware.title}"
    return Rates(
        matmul_flops={dtype: rate.tflops * 1e12 for dtype, rate in hardware.achievable.items()},
        attention_flops={direction: share * peak for direction, share in ATTENTION_SHARES.items()},
        memory_bytes=_bytes_per_second(hardware, "memory"),
        node_bytes=_bytes_per_second(hardware, "node"),
        network_bytes=_bytes_per_second(hardware, "network"),
        notes=[] if hardware.name in MEASURED_ATTENTION else [carried_over],
    )


def _bytes_per_second(hardware: Hardware, kind: str) -> float:
    rate = {str(name): rate for name, rate in hardware.rates.items()}.get(kind)
    if rate is None:
        raise _unknown(hardware, f"rates.{kind}", "how fast its bytes move")
    return (rate.achievable_gb_s or rate.gb_s) * 1e9


def _unknown(hardware: Hardware, key: str, what: str) -> RequestError:
    return RequestError(
        f"the schedule of {hardware.title} cannot be timed: {what} is not known",
        where=f"configs/hardware/{hardware.name}.yml: {key}",
        why="a breakdown needs the rates of matmuls, memory, node and network, and guesses none",
        next_command="add the rate with its source to that file",
    )


# --- what one operation takes -------------------------------------------------------------------


def seconds_of(operation: Operation, rates: Rates) -> float:
    """Of one execution that has its stream to itself; of a loop and of a done, nothing."""
    if operation.what == "loop" or operation.event == "done":
        return 0.0
    if operation.what == "collective":
        return _collective_seconds(operation, rates)
    computing = operation.flops / rate if (rate := _flops_rate(operation, rates)) else 0.0
    return max(computing, operation.bytes / rates.memory_bytes) + KERNEL_GAP_SECONDS


def _flops_rate(operation: Operation, rates: Rates) -> float | None:
    if operation.what == "attention":
        return rates.attention_flops[operation.kind]
    return rates.matmul_flops.get(operation.dtype) if operation.what == "matmul" else None


def _collective_seconds(operation: Operation, rates: Rates) -> float:
    """A ring over all devices of the group. Between nodes, each device sends through a network card of its own."""
    size, nodes = operation.group_size, operation.group_nodes
    if size < 2:
        return KERNEL_GAP_SECONDS
    within = size / nodes
    bandwidth = rates.node_bytes if nodes == 1 else min(rates.node_bytes, within * rates.network_bytes)
    hops = (size - nodes) * RING_HOP_SECONDS + (nodes - 1) * RING_NETWORK_HOP_SECONDS
    if operation.kind == "all-reduce":  # there and back; NCCL takes a tree where that is shorter
        tree = (within - 1) * TREE_HOP_SECONDS + log2(nodes) * TREE_NETWORK_HOP_SECONDS
        hops = 2 * min(hops, tree)
    if operation.kind in ("collective-permute", "collective-broadcast"):
        hops = RING_HOP_SECONDS if nodes == 1 else RING_NETWORK_HOP_SECONDS
    return operation.wire_bytes / bandwidth + hops + RING_SECONDS


def profile_text(schedule: Schedule, rates: Rates) -> str:
    """The modelled costs in the form of a PGLE profile; what is asynchronous has both of its names."""
    costs = {
        name: seconds_of(one, rates) * 1e6
        for operations in schedule.computations.values()
        for one in operations
        if one.what != "loop" and one.event != "done"
        for name in filter(None, (one.name, one.wraps))
    }
    return "".join(f'costs {{ name: "{name}" cost_us: {cost:.3f} }}\n' for name, cost in sorted(costs.items()))


# --- the walk -----------------------------------------------------------------------------------


class Span(Value, frozen=True):
    """What one stream does for a while, in one trip of a loop."""

    stream: str  # compute, communication, side
    start_seconds: float  # since the trip began
    seconds: float
    name: str
    what: str
    kind: str = ""
    op: str = ""
    layer: str = ""
    part: str = "elsewhere"
    exposed_seconds: float = 0.0  # of communication: how long compute waited for it


class Exchanged(Value, frozen=True):
    """What collectives of one kind along the same axes take in a step."""

    axes: list[str]
    kind: str
    seconds: float
    exposed_seconds: float  # while compute waited; the rest is hidden
    wire_bytes: float


class Walked(Value, frozen=True):
    seconds: float
    spent: dict[str, float]  # what compute does, or waits for -> seconds; together they are the step's
    exchanged: list[Exchanged]
    loops: dict[str, list[Span]]  # body -> one steady trip
    notes: list[str]


def walk(schedule: Schedule, rates: Rates) -> Walked:
    walker = _Walker(schedule, rates)
    walker.run(schedule.entry)
    return Walked(
        seconds=walker.now,
        spent=dict(sorted(walker.spent.items(), key=lambda one: -one[1])),
        exchanged=_exchanged(schedule, walker),
        loops=walker.loops,
        notes=[*rates.notes, *_untimed(schedule, rates), *schedule.not_counted],
    )


def _untimed(schedule: Schedule, rates: Rates) -> Iterator[str]:
    used = {one.dtype for operations in schedule.computations.values() for one in operations if one.what == "matmul"}
    for dtype in sorted(used - rates.matmul_flops.keys()):
        yield f"no achievable rate of {dtype} matmuls is known: they are timed by the bytes they move alone"


def _exchanged(schedule: Schedule, walker: "_Walker") -> list[Exchanged]:
    found: dict[tuple[tuple[str, ...], str], Exchanged] = {}
    for operations in schedule.computations.values():
        for one in operations:
            if one.what != "collective" or one.event == "done":
                continue
            key = (tuple(one.axes), one.kind)
            seconds, exposed = walker.busy[one.name], walker.exposed[one.name]
            wire = one.wire_bytes * walker.executed[one.name]
            before = found.get(key) or Exchanged(
                axes=one.axes, kind=one.kind, seconds=0, exposed_seconds=0, wire_bytes=0
            )
            found[key] = msgspec.structs.replace(
                before,
                seconds=before.seconds + seconds,
                exposed_seconds=before.exposed_seconds + exposed,
                wire_bytes=before.wire_bytes + wire,
            )
    return sorted(found.values(), key=lambda one: -one.wire_bytes)


class _Walker:
    """The clock of each stream, and what has been spent so far."""

    def __init__(self, schedule: Schedule, rates: Rates) -> None:
        self._schedule = schedule
        self._seconds = {
            one.name: seconds_of(one, rates) for lines in schedule.computations.values() for one in lines
        }
        self._communication = self._side = 0.0
        self._ends: dict[str, float] = {}  # of what was started on another stream
        self._sent: list[tuple[str, float, float]] = []  # collectives that may still be waited for: name, start, end
        self._spans: list[Span] = []  # of the trip that is being walked
        self.now = 0.0  # of the compute stream
        self.spent: dict[str, float] = defaultdict(float)
        self.busy: dict[str, float] = defaultdict(float)  # collective -> seconds
        self.exposed: dict[str, float] = defaultdict(float)
        self.executed: dict[str, float] = defaultdict(float)
        self._sums = (self.spent, self.busy, self.executed, self.exposed)
        self.loops: dict[str, list[Span]] = {}

    def run(self, computation: str) -> None:
        for one in self._schedule.computations[computation]:
            if one.what == "loop":
                self._loop(one)
            elif one.event == "done":
                self._wait(one.what, self._ends.get(one.of, self.now))
            elif one.what == "collective":
                self._send(one)
            elif one.event == "start":
                start = max(self._side, self.now)
                self._side = self._ends[one.name] = start + self._seconds[one.name]
                self._record(one, "side", start)
            else:
                self._record(one, "compute", self.now)
                self.spent[one.what] += self._seconds[one.name]
                self.now += self._seconds[one.name]

    def _send(self, one: Operation) -> None:
        start, seconds = max(self._communication, self.now), self._seconds[one.name]
        self._communication = self._ends[one.name] = start + seconds
        self.busy[one.name] += seconds
        self.executed[one.name] += 1
        self._sent = [sent for sent in self._sent if sent[2] > self.now]
        self._sent.append((one.name, start, start + seconds))
        self._record(one, "communication", start)
        if one.event == "run":
            self._wait("collective", start + seconds)

    def _wait(self, what: str, until: float) -> None:
        """Compute waits; for communication, whichever collective is on its stream in that time is exposed."""
        if until <= self.now:
            return
        if what == "collective":
            for name, start, end in self._sent:
                self.exposed[name] += max(0.0, min(end, until) - max(start, self.now))
        self.spent[EXPOSED if what == "collective" else SIDE] += until - self.now
        self.now = until

    def _loop(self, loop: Operation) -> None:
        outer, began = self._spans, self.now
        for _ in range(min(loop.trips, STEADY_TRIPS)):
            self._spans, trip_began = [], self.now
            before = [dict(sums) for sums in self._sums]
            self.run(loop.body)
        self.loops[loop.body] = self._of_the_trip(trip_began, before[-1])
        more = max(0, loop.trips - STEADY_TRIPS)
        self.now += (self.now - trip_began) * more  # what is still sent from before the loop ends when it would
        for sums, was in zip(self._sums, before, strict=True):
            for name in sums:
                sums[name] += (sums[name] - was.get(name, 0.0)) * more
        self._spans = outer
        self._spans.append(_span(loop, "compute", began, self.now - began))

    def _record(self, one: Operation, stream: str, start: float) -> None:
        self._spans.append(_span(one, stream, start, self._seconds[one.name]))

    def _of_the_trip(self, began: float, exposed_before: dict[str, float]) -> list[Span]:
        return [
            msgspec.structs.replace(
                span,
                start_seconds=span.start_seconds - began,
                exposed_seconds=self.exposed.get(span.name, 0.0) - exposed_before.get(span.name, 0.0),
            )
            for span in self._spans
        ]


def _span(one: Operation, stream: str, start: float, seconds: float) -> Span:
    return Span(
        stream=stream,
        start_seconds=start,
        seconds=seconds,
        name=one.name,
        what=one.what,
        kind=one.kind,
        op=one.op,
        layer=one.layer,
        part=one.part,
    )
