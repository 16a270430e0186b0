"""Model the time of a compiled step: the share of each part, and the timeline of each loop. No I/O.

A device has three streams: compute, communication and side. Each runs one operation at a time, in the order of the
schedule. If compute starts an operation on another stream, compute waits for it at its `done`. The rates are
published and not fitted, so the shares are a breakdown, not a prediction: they omit autotuning, contention between
collectives and matmuls, the power limit and slow nodes.
"""

from collections import defaultdict
from collections.abc import Iterator
from math import log2
from typing import NamedTuple

from benchmarks.compilation.compiled import Operation, Schedule
from benchmarks.values import Hardware

# FlashAttention-3 (arXiv 2407.08608), figures 5 and 6, for cuDNN on an H100 SXM5, head dimension 128, sequences of
# 4,096 tokens and a causal mask: 518 TFLOP/s forward and 499 backward. The peak is 989.
ATTENTION_SHARES = {"forward": 518 / 989, "backward": 499 / 989}
MEASURED_ATTENTION = ("h100", "h200")  # both have the same chip, but different memory

# NVIDIA's blog, "Getting Started with CUDA Graphs": kernels of 2.9 us take 3.8 us each if launched in sequence.
KERNEL_GAP_SECONDS = 0.9e-6

# NCCL in June 2026, ncclTunerConstantsDefaults in src/graph/tuning.cc, protocol Simple: the base latency of a ring,
# and the latency of each hop in a ring or a tree.
RING_SECONDS = 8.4e-6
RING_HOP_SECONDS, RING_NETWORK_HOP_SECONDS = 3.4e-6, 14e-6
TREE_HOP_SECONDS, TREE_NETWORK_HOP_SECONDS = 4.0e-6, 14e-6

EXPOSED, SIDE = "exposed communication", "waiting for the side stream"


class Span(NamedTuple):
    """One operation on a stream, in one iteration (trip) of a loop."""

    operation: Operation
    stream: str  # compute, communication or side
    start_seconds: float  # since the start of the trip
    seconds: float
    exposed_seconds: float = 0.0  # for communication: how long compute waited for it


class Breakdown(NamedTuple):
    shares: dict[str, float]  # what compute does, or waits for -> share of the step; the largest first
    loops: dict[str, list[Span]]  # body of a loop -> the operations of one trip
    notes: list[str]


def breakdown(schedule: Schedule, hardware: Hardware) -> Breakdown:
    """Return the breakdown. If a rate of the device is unknown, there are no shares, and a note names the rate."""
    missing = [f"rates.{kind}" for kind in ("memory", "node", "network") if kind not in hardware.rates]
    if not hardware.achievable or "bf16" not in hardware.peaks:
        missing.insert(0, "achievable")
    if missing:
        note = f"the schedule of {hardware.title} has no times: configs/hardware/{hardware.name}.yml lacks"
        return Breakdown({}, {}, [f"{note} {', '.join(missing)}"])
    rates = rates_of(hardware)
    trips: dict[str, _Trip] = {}
    step = _Trip(schedule.entry, schedule, rates, trips)
    spent = sorted(step.spent.items(), key=lambda one: -one[1])
    shares = {what: seconds / step.seconds for what, seconds in spent}
    loops = {body: trip.spans() for body, trip in trips.items()}
    return Breakdown(shares, loops, [*_notes(schedule, hardware, rates), *schedule.not_counted])


def _notes(schedule: Schedule, hardware: Hardware, rates: "Rates") -> Iterator[str]:
    if hardware.name not in MEASURED_ATTENTION:
        yield f"attention is assumed to reach the same share of the peak on {hardware.title} as cuDNN on an H100"
    used = {one.dtype for operations in schedule.computations.values() for one in operations if one.what == "matmul"}
    for dtype in sorted(used - rates.matmul_flops.keys()):
        yield f"no achievable rate of {dtype} matmuls is known, so their time comes from the bytes they move"


# --- the time of one operation ------------------------------------------------------------------


class Rates(NamedTuple):
    """The rates of a device in FLOPs and bytes per second."""

    matmul_flops: dict[str, float]  # precision -> achievable rate
    attention_flops: dict[str, float]  # forward or backward -> rate
    memory_bytes: float
    node_bytes: float
    network_bytes: float


def rates_of(hardware: Hardware) -> Rates:
    rates = {str(kind): (rate.achievable_gb_s or rate.gb_s) * 1e9 for kind, rate in hardware.rates.items()}
    peak = hardware.peaks["bf16"].tflops * 1e12
    return Rates(
        matmul_flops={dtype: rate.tflops * 1e12 for dtype, rate in hardware.achievable.items()},
        attention_flops={direction: share * peak for direction, share in ATTENTION_SHARES.items()},
        memory_bytes=rates["memory"],
        node_bytes=rates["node"],
        network_bytes=rates["network"],
    )


def seconds_of(operation: Operation, rates: Rates) -> float:
    """Return how long one execution of an operation takes without contention."""
    if operation.what == "collective":
        return _collective_seconds(operation, rates)
    if operation.what == "attention":
        rate = rates.attention_flops[operation.kind]
    else:
        rate = rates.matmul_flops.get(operation.dtype, 0.0) if operation.what == "matmul" else 0.0
    computing = operation.flops / rate if rate else 0.0
    return max(computing, operation.bytes / rates.memory_bytes) + KERNEL_GAP_SECONDS


def _collective_seconds(operation: Operation, rates: Rates) -> float:
    """Return how long a ring over all devices of the group takes. Each device has its own network card."""
    size, nodes = operation.group_size, operation.group_nodes
    if size < 2:
        return KERNEL_GAP_SECONDS
    within = size / nodes
    bandwidth = rates.node_bytes if nodes == 1 else min(rates.node_bytes, within * rates.network_bytes)
    hops = (size - nodes) * RING_HOP_SECONDS + (nodes - 1) * RING_NETWORK_HOP_SECONDS
    if operation.kind == "all-reduce":  # two passes over the ring; NCCL uses a tree if it is faster
        tree = (within - 1) * TREE_HOP_SECONDS + log2(nodes) * TREE_NETWORK_HOP_SECONDS
        hops = 2 * min(hops, tree)
    if operation.kind in ("collective-permute", "collective-broadcast"):
        hops = RING_HOP_SECONDS if nodes == 1 else RING_NETWORK_HOP_SECONDS
    return operation.wire_bytes / bandwidth + hops + RING_SECONDS


# --- a trip through a computation ---------------------------------------------------------------


class _Trip:
    """One trip through a computation. It waits for every operation that it starts, so all trips are equal."""

    def __init__(self, computation: str, schedule: Schedule, rates: Rates, loops: dict[str, "_Trip"]) -> None:
        self.seconds = 0.0  # the time of the compute stream
        self.spent: dict[str, float] = defaultdict(float)  # what compute does, or waits for -> seconds
        self._schedule, self._rates, self._loops = schedule, rates, loops
        self._free = {"communication": 0.0, "side": 0.0}  # stream -> when it becomes idle
        self._spans: dict[str, Span] = {}
        for one in schedule.computations[computation]:
            self._execute(one)

    def spans(self) -> list[Span]:
        return list(self._spans.values())

    def _execute(self, one: Operation) -> None:
        if one.what == "loop":
            self._repeat(one)
        elif one.event == "done":
            if started := self._spans.get(one.of):
                self._wait(started)
        elif one.what == "collective":
            sent = self._start(one, "communication")
            if one.event == "run":
                self._wait(sent)
        elif one.event == "start":
            self._start(one, "side")
        else:
            seconds = seconds_of(one, self._rates)
            self._spans[one.name] = Span(one, "compute", self.seconds, seconds)
            self.spent[one.what] += seconds
            self.seconds += seconds

    def _start(self, one: Operation, stream: str) -> Span:
        span = Span(one, stream, max(self._free[stream], self.seconds), seconds_of(one, self._rates))
        self._free[stream] = span.start_seconds + span.seconds
        self._spans[one.name] = span
        return span

    def _wait(self, span: Span) -> None:
        """Let compute wait for an operation. Collectives that run during the wait become exposed."""
        until = span.start_seconds + span.seconds
        if until <= self.seconds:
            return
        if span.stream == "communication":
            for name, one in self._spans.items():
                end = min(one.start_seconds + one.seconds, until)
                exposed = end - max(one.start_seconds, self.seconds)
                if one.stream == span.stream and exposed > 0:
                    self._spans[name] = one._replace(exposed_seconds=one.exposed_seconds + exposed)
        self.spent[EXPOSED if span.stream == "communication" else SIDE] += until - self.seconds
        self.seconds = until

    def _repeat(self, loop: Operation) -> None:
        if loop.body not in self._loops:
            self._loops[loop.body] = _Trip(loop.body, self._schedule, self._rates, self._loops)
        trip = self._loops[loop.body]
        self._spans[loop.name] = Span(loop, "compute", self.seconds, loop.trips * trip.seconds)
        self.seconds += loop.trips * trip.seconds
        for what, seconds in trip.spent.items():
            self.spent[what] += loop.trips * seconds
