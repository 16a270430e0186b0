"""Read node-NAME.jsonl, which node_sampler.py writes: the facts, the samples, and the end of sampling on each node.

A line that cannot be read is listed as unreadable; the other lines are still used.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from benchmarks import files
from benchmarks.values import EachTime, Value

FOLDER = "telemetry"
NODE_FILES = "node-*.jsonl"


class GpuFacts(Value, frozen=True):
    index: int
    name: str | None
    uuid: str | None
    bus_id: str | None
    power_limit_w: float | None  # the enforced limit
    max_sm_clock_mhz: int | None
    max_memory_clock_mhz: int | None
    remapped_rows: int | None
    mig: bool = False  # the GPU is divided by MIG, and the run has one of the parts


class GpuSample(Value, frozen=True, array_like=True):
    """One GPU at one moment, with the columns of node_sampler.COLUMNS. None: the GPU does not report the value."""

    energy_mj: int | None  # counted since the driver was loaded
    power_w: float | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    utilization_percent: int | None
    memory_used_bytes: int | None
    throttle_reasons: int | None  # the bits of NVML
    ecc_uncorrected: int | None  # counted since the driver was loaded
    pcie_replays: int | None


class NodeFacts(Value, frozen=True, tag_field="event", tag="facts"):
    """The facts about a node, in the first line of its file."""

    time: float  # Unix time by the node's own clock, as in all events of this module
    host: str
    interval: float
    cpus: int | None
    memory_bytes: int | None
    no_gpus_because: str | None
    driver: str | None
    nvml: str | None
    cuda: str | None
    gpus: list[GpuFacts]
    gpu_columns: list[str] = []


class NodeSample(Value, frozen=True, tag_field="event", tag="sample"):
    time: float
    cpu_utilisation: float | None  # of all processors, since the previous sample
    memory_used_bytes: int | None
    memory_available_bytes: int | None
    load: float | None
    gpus: list[GpuSample | None]  # None: the GPU did not respond
    errors: dict[str, str] = {}  # GPU index -> NVML's error


class NodeEnd(Value, frozen=True, tag_field="event", tag="end"):
    time: float
    reason: str
    samples: int
    cpu_seconds: float  # the CPU time that the sampler used
    remapped_rows: list[int | None]


class NodeRecord(Value, frozen=True):
    """All samples of one node, ordered by time."""

    name: str
    facts: NodeFacts | None
    samples: list[NodeSample]
    end: NodeEnd | None
    unreadable: list[str] = []  # "file:line reason"


_LINES = msgspec.json.Decoder(NodeFacts | NodeSample | NodeEnd)


def has_lost_gpu(line: bytes) -> bool:
    """Return whether a line is a sample with a GPU that did not respond; False if the line cannot be read."""
    try:
        found = _LINES.decode(line)
    except files.NOT_JSON:
        return False
    return isinstance(found, NodeSample) and None in found.gpus and bool(found.errors)


def read(folder: Path) -> Iterable[NodeRecord]:
    """Return the nodes of an attempt. A file is read only when it is needed. Without files, there are no nodes."""
    return EachTime(lambda: map(_node, sorted(folder.glob(NODE_FILES))))


def _node(path: Path) -> NodeRecord:
    facts: NodeFacts | None = None
    end: NodeEnd | None = None
    samples: list[NodeSample] = []
    unreadable: list[str] = []
    try:
        text = files.read(path)
    except OSError as error:
        unreadable.append(f"{path.name}: {error.strerror}")
        text = b""
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line:
            continue
        try:
            found = _LINES.decode(line)
        except files.NOT_JSON as error:
            unreadable.append(f"{path.name}:{number} {error}")
            continue
        if isinstance(found, NodeSample):
            samples.append(found)
        elif isinstance(found, NodeFacts):
            facts = facts or found
        else:
            end = found
    samples.sort(key=lambda sample: sample.time)
    name = path.name.removeprefix("node-").removesuffix(".jsonl")
    return NodeRecord(name=name, facts=facts, samples=samples, end=end, unreadable=unreadable)
