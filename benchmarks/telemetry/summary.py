"""What the machine did while it trained: energy, clocks, throttling, memory, load. Pure.

attempt-N/telemetry/node-NAME.jsonl is written beside the training by node_sampler.py and read by samples.py. The
GPUs' figures are in gpu.py, how the ranks differ in ranks.py, what people read in rows.py.
"""

from collections.abc import Sequence
from itertools import pairwise

from benchmarks.measuring.statistics import mean, median
from benchmarks.telemetry.gpu import GpuTelemetry, gpu_figures, named
from benchmarks.telemetry.samples import NodeRecord, NodeSample, Recorded
from benchmarks.values import Benchmark, RunRecord, Started, Step, Value, Window

FEWEST_SAMPLES = 2
GAP_INTERVALS = 3  # between two samples, before it is worth a word


class Telemetry(Value, frozen=True):
    """A part of result.json: what was sampled within the window that is counted."""

    nodes: int
    samples: int  # of all nodes, within the window
    fewest_samples: int  # of one node
    interval_seconds: float | None
    window_seconds: float | None  # None: no step is counted, and the figures are those of the whole attempt
    gpu: GpuTelemetry | None
    cpu_utilisation_mean: float | None  # share of all processors, over nodes and samples
    host_memory_bytes_max: int | None  # of one node
    null_because: dict[str, str]
    notes: list[str]


def of_run(
    recorded: Recorded,
    benchmark: Benchmark,
    record: RunRecord,
    marked: Sequence[Step],
    window: Window,
    unclaimed: str | None = None,
) -> tuple[Telemetry | None, str]:
    """The telemetry of a run's last attempt, or why there is none. `marked` are rank 0's steps.

    `unclaimed` says why no speed is claimed of the run; joules a token are not claimed then either.
    """
    if not recorded.nodes:
        return None, "the run was not sampled: its last attempt has no telemetry/node-NAME.jsonl"
    span = window_unix(record.started, marked, window)
    within = [step for step in marked if span and (window.first_step or 0) <= step.step <= (window.last_step or 0)]
    return summarise(
        recorded,
        span[0] if span else None,
        span[1] if span else None,
        None if unclaimed else len(within) * benchmark.tokens_per_step,
        nodes_expected=benchmark.nodes if benchmark.site.kind == "slurm" else 1,
        gpus_expected=0 if benchmark.hardware.kind == "cpu" else benchmark.gpus,
        unclaimed=unclaimed,
    ), ""


def window_unix(started: Sequence[Started], steps: Sequence[Step], window: Window) -> tuple[float, float] | None:
    """When the first counted step began and the last one ended, by the clock of rank 0's host."""
    begin = next((start.unix_seconds for start in started if start.rank == 0), None)
    places = [place for place, step in enumerate(steps) if step.step in (window.first_step, window.last_step)]
    if begin is None or not window.counted or not places:
        return None
    first, last = places[0], places[-1]
    elapsed = [step.elapsed_seconds for step in steps]
    before, after = 0.0 if first == 0 else elapsed[first - 1], elapsed[last]
    return None if before is None or after is None else (begin + before, begin + after)


def summarise(
    recorded: Recorded,
    window_from_unix: float | None,
    window_to_unix: float | None,
    tokens: int | None,
    *,
    nodes_expected: int | None = None,
    gpus_expected: int | None = None,
    unclaimed: str | None = None,
) -> Telemetry:
    """The figures of the samples within a window; of all samples where there is no window.

    `gpus_expected` of 0 says that the run uses no GPU: those of the nodes are not its own.
    """
    span = None if window_from_unix is None or window_to_unix is None else (window_from_unix, window_to_unix)
    inside = [_inside(node.samples, span) for node in recorded.nodes]
    counts = [len(samples) for samples in inside]
    interval = median([node.facts.interval for node in recorded.nodes if node.facts])
    nulls: dict[str, str] = {}
    too_short = _too_short(span, max(counts, default=0), interval)
    flat = [sample for samples in inside for sample in samples]
    usage = mean([sample.cpu_utilisation for sample in flat if sample.cpu_utilisation is not None])
    memory = max((sample.memory_used_bytes for sample in flat if sample.memory_used_bytes is not None), default=None)
    for name, value in (("cpu_utilisation_mean", usage), ("host_memory_bytes_max", memory)):
        if value is None:
            nulls[name] = too_short or "the nodes do not say it: /proc could not be read there"
    if span is None:
        nulls["window_seconds"] = "no step is counted, or its time of day is unknown"
    complete = nodes_expected in (None, len(recorded.nodes))
    missing = "" if complete else f"{len(recorded.nodes)} of {nodes_expected} nodes were sampled"
    gpu, why_no_gpu = gpu_figures(
        recorded.nodes, span, tokens, gpus_expected, too_short=too_short, incomplete=missing, unclaimed=unclaimed
    )
    if gpu is None:
        nulls["gpu"] = why_no_gpu
    return Telemetry(
        nodes=len(recorded.nodes),
        samples=len(flat),
        fewest_samples=min(counts, default=0),
        interval_seconds=interval,
        window_seconds=span[1] - span[0] if span else None,
        gpu=gpu,
        cpu_utilisation_mean=usage,
        host_memory_bytes_max=memory,
        null_because=nulls,
        notes=[*([missing] if missing else []), *_notes(recorded, span, nulls.get("gpu"))],
    )


def _inside(samples: Sequence[NodeSample], span: tuple[float, float] | None) -> list[NodeSample]:
    return [sample for sample in samples if span is None or span[0] <= sample.time <= span[1]]


def _too_short(span: tuple[float, float] | None, samples: int, interval: float | None) -> str:
    """Why means and shares would say nothing; empty where they do."""
    if samples >= FEWEST_SAMPLES:
        return ""
    where = f"the window of {span[1] - span[0]:.3g} s" if span else "the attempt"
    every = f", one is taken every {interval:g} s" if interval else ""
    return f"{where} holds {samples} samples of a node{every}"


def _notes(recorded: Recorded, span: tuple[float, float] | None, no_gpu: str | None) -> list[str]:
    found = [f"no GPU figures: {no_gpu}"] if no_gpu else []
    if recorded.unreadable:
        lines = "1 line" if len(recorded.unreadable) == 1 else f"{len(recorded.unreadable)} lines"
        found.append(f"{lines} could not be read (first: {recorded.unreadable[0]})")
    if without := [node.name for node in recorded.nodes if node.facts is None]:
        found.append(f"no first line, so nothing is known of the GPUs there: {named(without)}")
    if cut := [node.name for node in recorded.nodes if span and _last_time(node) < span[1]]:
        found.append(f"not sampled to the window's end: {named(cut)}")
    if gaps := [text for node in recorded.nodes if (text := _gap(node, span))]:
        found.append(f"gaps in the samples: {named(gaps)}")
    return found


def _last_time(node: NodeRecord) -> float:
    return node.samples[-1].time if node.samples else float("-inf")


def _gap(node: NodeRecord, span: tuple[float, float] | None) -> str:
    times = [sample.time for sample in _inside(node.samples, span)]
    longest = max((after - before for before, after in pairwise(times)), default=0.0)
    late = node.facts is not None and longest > GAP_INTERVALS * node.facts.interval
    return f"{longest:.3g} s on {node.name}" if late else ""
