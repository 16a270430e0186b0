"""Reads what node_sampler.py wrote: node-NAME.jsonl -> facts, samples, end of each node.

A line that cannot be read is named, and takes nothing else with it.
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
    power_limit_w: float | None  # the one that is enforced
    max_sm_clock_mhz: int | None
    max_memory_clock_mhz: int | None
    remapped_rows: int | None
    mig: bool = False  # it is cut into slices, of which the run has one


class GpuSample(Value, frozen=True, array_like=True):
    """One GPU at one moment; the order is node_sampler.COLUMNS. None: it does not support that."""

    energy_mj: int | None  # since the driver was loaded
    power_w: float | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    utilization_percent: int | None
    memory_used_bytes: int | None
    throttle_reasons: int | None  # NVML's bits
    ecc_uncorrected: int | None  # since the driver was loaded
    pcie_replays: int | None


class NodeFacts(Value, frozen=True, tag_field="event", tag="facts"):
    """The first line of a node."""

    time: float  # Unix time by the node's own clock, here and below
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
    cpu_utilisation: float | None  # of all processors, since the sample before
    memory_used_bytes: int | None
    memory_available_bytes: int | None
    load: float | None
    gpus: list[GpuSample | None]  # None: it answers nothing any more
    errors: dict[str, str] = {}  # GPU index -> what NVML said


class NodeEnd(Value, frozen=True, tag_field="event", tag="end"):
    time: float
    reason: str
    samples: int
    cpu_seconds: float  # what the sampler itself took
    remapped_rows: list[int | None]


class NodeRecord(Value, frozen=True):
    """All that was sampled on one node, in the order of time."""

    name: str
    facts: NodeFacts | None
    samples: list[NodeSample]
    end: NodeEnd | None
    unreadable: list[str] = []  # "file:line reason"


_LINES = msgspec.json.Decoder(NodeFacts | NodeSample | NodeEnd)


def has_lost_gpu(line: bytes) -> bool:
    """Whether a line is a sample with a GPU that answered nothing. One that cannot be read yet is not."""
    try:
        found = _LINES.decode(line)
    except files.NOT_JSON:
        return False
    return isinstance(found, NodeSample) and None in found.gpus and bool(found.errors)


def read(folder: Path) -> Iterable[NodeRecord]:
    """Return all nodes of an attempt, each read when it is asked for; no nodes if nothing was sampled."""
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
