"""Summarise the state of the machines during training: energy, clocks, throttling, memory, load. No I/O.

node_sampler.py writes attempt-N/telemetry/node-NAME.jsonl during training, and samples.py reads it. gpu.py computes
the metrics of the GPUs.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from benchmarks.statistics import RunningMean, median
from benchmarks.telemetry.gpu import GpuFigures, GpuTelemetry
from benchmarks.telemetry.samples import NodeRecord
from benchmarks.text import Rows, first_few, plural
from benchmarks.values import Benchmark, RankStart, RunRecord, Step, Value, Window

FEWEST_SAMPLES = 2


class Telemetry(Value, frozen=True):
    """A part of result.json: a summary of the samples within the window."""

    nodes: int
    samples: int  # the number of samples within the window, on all nodes
    fewest_samples: int  # the number of samples of the node with the fewest
    interval_seconds: float | None
    window_seconds: float | None  # None: there is no window, so the metrics cover the whole attempt
    gpu: GpuTelemetry | None
    cpu_utilisation_mean: float | None  # the share of busy processor time, averaged over nodes and samples
    host_memory_bytes_max: int | None  # the highest use of any node
    null_because: dict[str, str]
    notes: list[str]


def of_run(
    nodes: Iterable[NodeRecord],
    benchmark: Benchmark,
    record: RunRecord,
    marked: Sequence[Step],
    window: Window,
    unclaimed: str | None = None,
) -> tuple[Telemetry | None, str]:
    """Return the telemetry of one attempt of a run, or the reason why it is missing. `marked` are rank 0's steps.

    `unclaimed` is the reason why the run has no valid speed. If it is set, joules per token are null too.
    """
    span = window_unix(record.started, marked, window)
    within = [step for step in marked if span and (window.first_step or 0) <= step.step <= (window.last_step or 0)]
    found = summarise(
        nodes,
        span,
        None if unclaimed else len(within) * benchmark.tokens_per_step,
        nodes_expected=benchmark.nodes if benchmark.site.kind == "slurm" else 1,
        gpus_expected=0 if benchmark.hardware.kind == "cpu" else benchmark.gpus,
        unclaimed=unclaimed,
    )
    if not found.nodes:
        return None, "the run was not sampled: its last attempt has no telemetry/node-NAME.jsonl"
    return found, ""


def window_unix(started: Sequence[RankStart], steps: Sequence[Step], window: Window) -> tuple[float, float] | None:
    """Return when the window's first step began and its last step ended, according to the clock of rank 0's host."""
    begin = next((start.unix_seconds for start in started if start.rank == 0), None)
    places = [place for place, step in enumerate(steps) if step.step in (window.first_step, window.last_step)]
    if begin is None or not window.counted or not places:
        return None
    first, last = places[0], places[-1]
    elapsed = [step.elapsed_seconds for step in steps]
    before, after = 0.0 if first == 0 else elapsed[first - 1], elapsed[last]
    return None if before is None or after is None else (begin + before, begin + after)


def summarise(
    nodes: Iterable[NodeRecord],
    span: tuple[float, float] | None,
    tokens: int | None,
    *,
    nodes_expected: int | None = None,
    gpus_expected: int | None = None,
    unclaimed: str | None = None,
) -> Telemetry:
    """Return the metrics of the samples within the window; without a window, of all samples.

    `gpus_expected` is 0 if the run does not use the GPUs of its nodes.
    """
    gpus, usage = GpuFigures(span), RunningMean()
    counts: list[int] = []
    intervals: list[float] = []
    memories: list[int] = []
    unreadable: list[str] = []
    cut: list[str] = []
    for node in nodes:  # there may be thousands of nodes, and only one of them is in memory
        gpus.add(node)
        inside = [s for s in node.samples if span is None or span[0] <= s.time <= span[1]]
        counts.append(len(inside))
        intervals += [node.facts.interval] if node.facts else []
        usage.add([sample.cpu_utilisation for sample in inside if sample.cpu_utilisation is not None])
        used = [sample.memory_used_bytes for sample in inside if sample.memory_used_bytes is not None]
        memories += [max(used)] if used else []
        unreadable += node.unreadable
        if span and (not node.samples or node.samples[-1].time < span[1]):
            cut.append(node.name)
    interval = median(intervals)
    nulls: dict[str, str] = {}
    too_short = _too_short(span, max(counts, default=0), interval)
    memory = max(memories, default=None)
    for name, value in (("cpu_utilisation_mean", usage.value()), ("host_memory_bytes_max", memory)):
        if value is None:
            nulls[name] = too_short or "unknown, because /proc could not be read on the nodes"
    if span is None:
        nulls["window_seconds"] = "no step is counted, or the time of day is unknown"
    complete = nodes_expected in (None, len(counts))
    missing = "" if complete else f"{len(counts)} of {nodes_expected} nodes were sampled"
    gpu, why_no_gpu = gpus.figures(
        tokens, gpus_expected, too_short=too_short, incomplete=missing, unclaimed=unclaimed
    )
    if gpu is None:
        nulls["gpu"] = why_no_gpu
    return Telemetry(
        nodes=len(counts),
        samples=sum(counts),
        fewest_samples=min(counts, default=0),
        interval_seconds=interval,
        window_seconds=span[1] - span[0] if span else None,
        gpu=gpu,
        cpu_utilisation_mean=usage.value(),
        host_memory_bytes_max=memory,
        null_because=nulls,
        notes=[*([missing] if missing else []), *_notes(nulls.get("gpu"), unreadable, cut)],
    )


def _too_short(span: tuple[float, float] | None, samples: int, interval: float | None) -> str:
    """Return why there are too few samples for averages and shares; empty if there are enough."""
    if samples >= FEWEST_SAMPLES:
        return ""
    where = f"the window of {span[1] - span[0]:.3g} s" if span else "the attempt"
    every = f" (one every {interval:g} s)" if interval else ""
    return f"{where} has only {samples} samples per node{every}"


def _notes(no_gpu: str | None, unreadable: Sequence[str], cut: Sequence[str]) -> list[str]:
    found = [f"no GPU figures: {no_gpu}"] if no_gpu else []
    if unreadable:
        found.append(f"{plural(len(unreadable), 'line')} could not be read (first: {unreadable[0]})")
    if cut:
        found.append(f"sampling stopped before the end of the window: {first_few(cut)}")
    return found


# --- differences between ranks --------------------------------------------------------------------
# In synchronous training, every rank waits for the slowest rank in each step. Step times are then nearly equal even
# if one machine is slow. A rank with another step time deserves a check, but equal ranks do not prove equal machines.

MOST_NAMED = 8
CAVEAT = (
    "in synchronous training, all ranks wait for the slowest one in every step, "
    "so equal step times do not prove equal machines"
)
CLOCKS = "the start of a rank comes from its host's clock, so a clock difference looks like a late start"


class RankTime(Value, frozen=True):
    """The median step time of one rank over the counted steps."""

    rank: int
    host: str | None  # None: the rank did not report its host
    seconds_per_step: float


class LateRank(Value, frozen=True):
    """A rank that started training later than the first rank."""

    rank: int
    host: str
    seconds_late: float


class RankSpread(Value, frozen=True):
    """A part of result.json: how much the step times of the ranks differ."""

    ranks: int  # the number of ranks with a time for a counted step
    without_times: int  # ranks that reported steps or their start, but no time for a counted step
    slowest: RankTime
    fastest: RankTime
    spread: float  # (slowest - fastest) / (median of all ranks)
    worst: list[RankTime]  # at most 8 ranks, the slowest first
    latest: list[LateRank]  # at most 8 ranks, the latest first; empty if the ranks did not report their start
    notes: list[str]


def rank_spread(steps: Iterable[Step], counted: Collection[int], started: Sequence[RankStart]) -> RankSpread | None:
    """Return how ranks' step times differ in the counted steps of one attempt; None for fewer than two ranks."""
    wanted = frozenset(counted)
    medians = {
        rank: median([step.seconds for step in own if step.seconds is not None and step.step in wanted])
        for rank, own in groupby(steps, key=lambda step: step.rank)
    }
    hosts = {start.rank: start.host for start in started}
    times_of = [
        RankTime(rank=rank, host=hosts.get(rank), seconds_per_step=middle)
        for rank, middle in medians.items()
        if middle is not None
    ]
    if len(times_of) < 2:
        return None
    ordered = sorted(times_of, key=lambda time: (-time.seconds_per_step, time.rank))
    slowest, fastest = ordered[0], ordered[-1]
    middle = median([time.seconds_per_step for time in ordered]) or 0.0
    latest = _latest(started)
    return RankSpread(
        ranks=len(ordered),
        without_times=len(medians.keys() | hosts.keys()) - len(ordered),
        slowest=slowest,
        fastest=fastest,
        spread=(slowest.seconds_per_step - fastest.seconds_per_step) / middle if middle > 0 else 0.0,
        worst=ordered[:MOST_NAMED],
        latest=latest,
        notes=[CAVEAT, CLOCKS] if latest else [CAVEAT],
    )


def _latest(started: Sequence[RankStart]) -> list[LateRank]:
    if len(started) < 2:
        return []
    first = min(start.unix_seconds for start in started)
    late = [LateRank(rank=s.rank, host=s.host, seconds_late=s.unix_seconds - first) for s in started]
    return sorted(late, key=lambda rank: (-rank.seconds_late, rank.rank))[:MOST_NAMED]


def telemetry_rows(telemetry: Telemetry | None, ranks: RankSpread | None = None) -> Rows:
    """Return rows of text about the machines and the ranks; an empty list without telemetry."""
    rows: Rows = []
    if telemetry is not None:
        rows += _gpu_rows(telemetry.gpu) if telemetry.gpu else []
        rows.append(("host", _host_text(telemetry)))
    if ranks is not None:
        slow, fast = (
            f"rank {one.rank}" + (f" on {one.host}" if one.host else "") for one in (ranks.slowest, ranks.fastest)
        )
        lines = [f"{ranks.ranks} ranks, {ranks.spread:.2%} between the slowest ({slow}) and the fastest ({fast})"]
        if ranks.latest:
            last = ranks.latest[0]
            lines.append(
                f"the last rank started {last.seconds_late:.3g} s after the first (rank {last.rank} on {last.host})"
            )
        if ranks.without_times:
            lines.append(f"{ranks.without_times} more ranks recorded no time for any counted step")
        rows.append(("ranks", "\n".join([*lines, CAVEAT])))
    return rows


def _host_text(telemetry: Telemetry) -> str:
    words = []
    if telemetry.cpu_utilisation_mean is not None:
        words.append(f"CPU {telemetry.cpu_utilisation_mean:.0%} busy")
    if telemetry.host_memory_bytes_max is not None:
        words.append(f"at most {telemetry.host_memory_bytes_max / 1e9:.3g} GB of host memory used")
    if not words:
        return "unknown: " + telemetry.null_because["cpu_utilisation_mean"]
    return ", ".join(words) + ("" if telemetry.nodes == 1 else f" ({telemetry.nodes} nodes)")


def _gpu_rows(gpu: GpuTelemetry) -> Rows:
    energy = ["unknown: " + gpu.null_because.get("energy_joules", "")]
    if gpu.energy_joules is not None:
        energy = [f"{gpu.energy_joules / 1e3:.4g} kJ"]
    if gpu.joules_per_token is not None:
        energy.append(f"{gpu.joules_per_token:.3g} J per token")
    if gpu.power_watts_mean is not None:
        limit = f" of {gpu.power_limit_watts:.0f}" if gpu.power_limit_watts else ""
        energy.append(f"{gpu.power_watts_mean:.0f} W{limit} per GPU")
    rows = [("energy", ", ".join(energy))]
    if gpu.sm_clock_mhz_median is not None:
        most = f", limit {gpu.sm_clock_mhz_highest} MHz" if gpu.sm_clock_mhz_highest else ""
        slow, slowest = gpu.slowest, ""
        if slow is not None and gpu.gpus > 1:
            below = slow.sm_clock_mhz / gpu.sm_clock_mhz_median - 1
            slowest = f"; the slowest is GPU {slow.index} of {slow.host}, {slow.sm_clock_mhz:.0f} MHz ({below:+.1%})"
        rows.append(("SM clock", f"{gpu.sm_clock_mhz_median:.0f} MHz median{most}{slowest}"))
    if gpu.throttled is not None:
        held = [f"{reason.replace('_', ' ')} {share:.0%}" for reason, share in gpu.throttled.items() if share]
        rows.append(("throttled", ", ".join(held) + " of the samples" if held else "never"))
    errors = {"ECC errors": gpu.ecc_uncorrected, "remapped rows": gpu.remapped_rows, "PCIe replays": gpu.pcie_replays}
    if new := [f"{count} new {what}" for what, count in errors.items() if count]:
        rows.append(("GPU errors", ", ".join(new)))
    return rows + [("GPU notes", "\n".join(gpu.notes))] * bool(gpu.notes)
