"""The parts of a run's three small files that a row is made from. What else stands there is not looked at.

Keys that older versions of Stepmark did not write have a default.
"""

from typing import Any, Literal

import msgspec


class Slim(msgspec.Struct, frozen=True, gc=False):
    """A part of a file: other keys may be there."""


class Named(Slim, frozen=True):
    name: str


class HardwarePart(Slim, frozen=True):
    name: str
    kind: str = "gpu"


class SitePart(Slim, frozen=True):
    name: str
    kind: str = "local"
    environment: dict[str, str] = {}


class BenchmarkPart(Slim, frozen=True):
    backend: str
    engine: str
    model: Named
    task: str
    dtype: str
    hardware: HardwarePart
    site: SitePart
    gpus: int
    nodes: int
    parallelism: dict[str, int]
    sequence_length: int
    global_batch_size: int
    steps: int
    window: str
    profile: str = "none"
    pgle: str = "off"
    inject_slowdown: float = 0.0


class Git(Slim, frozen=True):
    commit: str
    changed_files: int | None = None


class Machine(Slim, frozen=True):
    hostname: str | None = None
    cpu: str | None = None


class WorkerPart(Slim, frozen=True):
    rank: int = 0
    device_kind: str | None = None
    versions: dict[str, str] = {}


class NightlyPart(Slim, frozen=True):
    suite: str
    cell: str
    night: str
    role: str = "night"


class LabelsPart(Slim, frozen=True):
    tags: list[str] = []
    nightly: NightlyPart | None = None


class ProvenancePart(Slim, frozen=True):
    stepmark: str | None = None
    run_id: str | None = None
    git: Git | None = None
    environment: dict[str, Any] = {}
    machine: Machine = Machine()
    worker: list[WorkerPart] = []
    labels: LabelsPart = LabelsPart()


class OfBenchmark(Slim, frozen=True):
    backend: str
    model: str
    dtype: str
    gpus: int


class WindowPart(Slim, frozen=True):
    rule: str
    counted: int = 0
    settled: bool = False


class Seconds(Slim, frozen=True):
    median: float | None = None
    mean: float | None = None
    ci95: tuple[float, float] | None = None
    excess: float | None = None


class MfuPart(Slim, frozen=True):
    convention: str
    precision_peak: str
    peak_tflops: float
    percent: float


class LossPart(Slim, frozen=True):
    last: float | None = None


class GpuPart(Slim, frozen=True):
    memory_bytes_max: int | None = None


class TelemetryPart(Slim, frozen=True):
    gpu: GpuPart | None = None
    host_memory_bytes_max: int | None = None


class AttemptPart(Slim, frozen=True):
    nodes: str | None = None


class ResultPart(Slim, frozen=True):
    schema_version: int
    run_id: str
    status: Literal["valid", "invalid", "failed"]
    benchmark: OfBenchmark
    window: WindowPart
    seconds_per_step: Seconds
    reasons: list[str] = []
    tokens_per_second: float | None = None
    tokens_per_second_per_gpu: float | None = None
    mfu: list[MfuPart] | None = None
    loss: LossPart = LossPart()
    telemetry: TelemetryPart | None = None
    attempts: list[AttemptPart] = []
    not_comparable: list[str] = []
    slowed_by: float = 0.0
