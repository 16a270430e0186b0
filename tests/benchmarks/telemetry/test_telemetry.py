"""Samples with known sums: what is counted within a window, what is unknown and why; and which rank is slow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.telemetry.gpu import THROTTLE_BITS
from benchmarks.telemetry.samples import (
    GpuFacts,
    GpuSample,
    NodeEnd,
    NodeFacts,
    NodeRecord,
    NodeSample,
    read,
)
from benchmarks.telemetry.summary import (
    CAVEAT,
    RankSpread,
    Telemetry,
    of_run,
    rank_spread,
    summarise,
    telemetry_rows,
    window_unix,
)
from benchmarks.values import Benchmark, RankStart, RunRecord, Step, Window

T0 = 1763755200.0


def gpu_facts(index: int, **changes: Any) -> GpuFacts:
    facts = GpuFacts(index, "NVIDIA H100 80GB HBM3", f"GPU-{index}", None, 700.0, 1980, 2619, 0)
    return msgspec.structs.replace(facts, **changes)


def facts_of(name: str, gpus: Sequence[GpuFacts], **changes: Any) -> NodeFacts:
    none = None if gpus else "no NVIDIA driver: NVMLError_LibraryNotFound"
    driver, cuda = ("580.65", "13.0") if gpus else (None, None)
    return msgspec.structs.replace(
        NodeFacts(T0, name, 1.0, 8, 10**12, none, driver, None, cuda, list(gpus)), **changes
    )


def node(
    name: str = "n1",
    count: int = 2,
    seconds: int = 10,
    rows: Any = None,
    end: bool = True,
    gpus: Sequence[GpuFacts] = (),
    **changes: Any,
) -> NodeRecord:
    """One sample a second from T0; each GPU draws `100 * (index + 1)` W by its counter."""

    def row(second: int, gpu: int) -> GpuSample | None:
        energy = 5_000_000 + 100_000 * (gpu + 1) * second
        mine = GpuSample(energy, 500.0, 1755, 2619, 60, 99, 2**35, 0, 0, 0)
        found: GpuSample | None = rows(second, gpu, mine) if rows else mine
        return found

    samples = [
        NodeSample(
            time=T0 + second,
            cpu_utilisation=None if second == 0 else 0.5,
            memory_used_bytes=second * 10**9,
            memory_available_bytes=10**11,
            load=1.0,
            gpus=[row(second, gpu) for gpu in range(count)],
        )
        for second in range(seconds + 1)
    ]
    last = NodeEnd(time=T0 + seconds, reason="SIGTERM", samples=1, cpu_seconds=0.1, remapped_rows=[0] * count)
    facts = facts_of(name, gpus or [gpu_facts(index) for index in range(count)], **changes)
    return NodeRecord(name=name, facts=facts, samples=samples, end=last if end else None)


def with_row(**changes: Any) -> Any:
    """Every GPU's row, changed."""
    return lambda second, gpu, row: msgspec.structs.replace(
        row, **{name: value(second, gpu) if callable(value) else value for name, value in changes.items()}
    )


def figures(
    *nodes: NodeRecord, window: tuple[float, float] = (2.0, 8.0), tokens: int = 1000, **more: Any
) -> Telemetry:
    return summarise(nodes, (T0 + window[0], T0 + window[1]), tokens, **more)


# --- energy ---------------------------------------------------------------------------------------------


def test_energy_is_the_difference_of_all_counters_over_the_window() -> None:
    """100 and 200 W on each of two nodes, for 6 s."""
    found = figures(node("a"), node("b"), tokens=900)
    assert (found.gpu.energy_joules, found.gpu.joules_per_token) == (3600.0, 4.0)
    assert (found.nodes, found.gpu.gpus, found.samples, found.fewest_samples) == (2, 4, 14, 7)
    assert (found.interval_seconds, found.window_seconds) == (1.0, 6.0)
    assert found.gpu.null_because == found.null_because == {}


def test_a_counter_that_does_not_grow_evenly_is_read_where_the_window_ends() -> None:
    """It jumps between 5 and 6 s: a quarter of the jump has come by 5.25 s, none by 5 s."""
    jump = with_row(energy_mj=lambda second, _: 0 if second <= 5 else 8_000_000)
    quarter, none = (figures(node(count=1, rows=jump), window=(1, end)).gpu for end in (5.25, 5.0))
    assert (quarter.energy_joules, none.energy_joules) == (pytest.approx(2000), 0)


def why_no_energy(found: Telemetry) -> str:
    assert found.gpu.energy_joules is found.gpu.joules_per_token is None
    assert found.gpu.null_because["joules_per_token"] == found.gpu.null_because["energy_joules"]
    return found.gpu.null_because["energy_joules"]


FEWER = with_row(energy_mj=lambda second, gpu: None if gpu else 100_000 * second)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (figures(node(), node("n2", rows=FEWER)), "GPU 1 of n2 has no energy counter"),
        (figures(node(rows=with_row(energy_mj=None))), "GPU 0 of n1 has no energy counter"),
        (figures(node(count=1), window=(-0.5, 5.0)), "GPU 0 of n1 was not sampled over the whole window"),
        (figures(node(count=1), window=(5.0, 10.5)), "GPU 0 of n1 was not sampled over the whole window"),
        (figures(node(), gpus_expected=4), "2 of 4 GPUs were sampled"),
        (figures(node(), gpus_expected=1), "2 of 1 GPUs were sampled"),
        (figures(node(), gpus_expected=4, nodes_expected=2), "1 of 2 nodes were sampled"),
    ],
)
def test_energy_of_which_a_part_is_unknown_is_unknown_and_the_rest_is_not(found: Telemetry, why: str) -> None:
    assert why_no_energy(found) == why
    assert found.gpu.power_watts_mean == 500
    assert ("1 of 2 nodes were sampled" in found.notes) == (why == "1 of 2 nodes were sampled")


# --- power, clocks, throttling --------------------------------------------------------------------------


def test_power_temperature_and_memory_within_the_window() -> None:
    rows = with_row(
        power_w=lambda second, gpu: 900.0 if second in (0, 1, 9, 10) else 100.0 * (gpu + 1) + second,
        temperature_c=lambda second, gpu: 99 if second > 8 else 50 + gpu,
        memory_used_bytes=lambda second, gpu: 99 * 10**9 if second < 2 else gpu * 10**9,
    )
    found = figures(node(rows=rows)).gpu
    assert (found.power_watts_mean, found.power_watts_max) == (155.0, 208.0)
    assert (found.temperature_c_max, found.memory_bytes_max) == (51, 10**9)
    assert (found.power_limit_watts, found.sm_clock_mhz_highest) == (700.0, 1980)
    assert (found.driver, found.cuda) == ("580.65", "13.0")


def test_the_slowest_gpu_is_the_one_with_the_lowest_median_clock() -> None:
    """One that was slow for a moment, and at another time than the window, is not."""

    def rows(second: int, gpu: int, row: GpuSample) -> GpuSample:
        clock = {0: 1700, 1: 1755, 2: 1980}[gpu]
        if gpu == 1 and second == 6:
            clock = 300
        if gpu == 2 and not 5 <= second <= 8:
            clock = 200
        return msgspec.structs.replace(row, sm_clock_mhz=clock)

    found = figures(node("a", count=1), node("b", count=3, rows=rows), window=(5, 8)).gpu
    assert (found.slowest.host, found.slowest.index, found.slowest.uuid) == ("b", 0, "GPU-0")
    assert (found.slowest.sm_clock_mhz, found.sm_clock_mhz_median) == (1700, 1755)


@pytest.mark.parametrize(("name", "bit"), THROTTLE_BITS.items())
def test_throttling_is_a_share_of_the_samples(name: str, bit: int) -> None:
    """In 3 of 7 samples of one of two GPUs; other reasons (idle 0x1, application clocks 0x2) do not count."""

    def rows(second: int, gpu: int, row: GpuSample) -> GpuSample:
        held = gpu == 1 and second in (1, 4, 5, 6, 9)
        return msgspec.structs.replace(row, throttle_reasons=bit | 0x3 if held else 0x3)

    found = figures(node(rows=rows)).gpu
    assert found.throttled == {reason: 3 / 14 if reason == name else 0.0 for reason in THROTTLE_BITS}


def test_errors_are_those_of_the_whole_attempt() -> None:
    rows = with_row(ecc_uncorrected=lambda s, g: 5 + (s > 0), pcie_replays=lambda s, g: 7 + 2 * (s > 9) * g)  # noqa: ARG005
    before = [gpu_facts(0, remapped_rows=1), gpu_facts(1, remapped_rows=4)]
    plain = node(rows=rows, gpus=before)
    after = msgspec.structs.replace(plain.end, remapped_rows=[1, 6])
    found = figures(msgspec.structs.replace(plain, end=after)).gpu
    assert (found.ecc_uncorrected, found.pcie_replays, found.remapped_rows) == (2, 2, 2)


def test_what_no_gpu_says_is_null_with_a_reason() -> None:
    nothing = dict.fromkeys(GpuSample.__struct_fields__)
    bare = {**dict.fromkeys(GpuFacts.__struct_fields__), "index": 0}
    found = figures(node(count=1, rows=with_row(**nothing), gpus=[GpuFacts(**bare)], driver=None, cuda=None)).gpu
    known = {name for name in found.__struct_fields__ if getattr(found, name) is not None}
    assert known == {"gpus", "null_because", "notes"}
    assert found.null_because.keys() == set(found.__struct_fields__) - known
    assert found.null_because["throttled"] == "the driver does not report it for all GPUs"


def test_a_gpu_that_fell_off_is_named_and_the_others_are_counted() -> None:
    def rows(second: int, gpu: int, row: GpuSample) -> GpuSample | None:
        return None if gpu == 1 and second >= 5 else row

    plain = node(rows=rows)
    errors = [{"1": "NVMLError_GpuIsLost"} if place >= 5 else {} for place in range(len(plain.samples))]
    samples = [msgspec.structs.replace(s, errors=e) for s, e in zip(plain.samples, errors, strict=True)]
    found = figures(msgspec.structs.replace(plain, samples=samples))
    assert why_no_energy(found) == "GPU 1 of n1 was not sampled over the whole window"
    assert found.gpu.notes == ["GPU 1 of n1: NVMLError_GpuIsLost"]
    assert (found.gpu.gpus, found.gpu.sm_clock_mhz_median) == (2, 1755)


# --- without GPUs, without enough samples ---------------------------------------------------------------


def test_without_nvml_the_host_and_the_reason_are_recorded() -> None:
    found = figures(node("a", count=0), node("b", count=0))
    assert found.gpu is None
    assert found.null_because == {"gpu": "no NVIDIA driver: NVMLError_LibraryNotFound"}
    assert found.notes == ["no GPU figures: no NVIDIA driver: NVMLError_LibraryNotFound"]
    assert (found.cpu_utilisation_mean, found.host_memory_bytes_max) == (0.5, 8 * 10**9)


@pytest.mark.parametrize(("window", "count"), [((3.1, 3.9), 0), ((3.5, 4.5), 1)])
def test_a_window_of_fewer_than_two_samples_leaves_what_was_read_before_it(
    window: tuple[float, float], count: int
) -> None:
    found = figures(node(), window=window)
    assert found.gpu.power_limit_watts == 700
    assert found.gpu.sm_clock_mhz_highest == 1980
    assert found.gpu.ecc_uncorrected == found.gpu.remapped_rows == 0
    width = f"{window[1] - window[0]:.3g}"
    why = f"the window of {width} s has only {count} samples per node (one every 1 s)"
    assert why_no_energy(found) == why
    nulls = (
        "power_watts_mean",
        "power_watts_max",
        "sm_clock_mhz_median",
        "throttled",
        "slowest",
        "temperature_c_max",
    )
    assert {name: getattr(found.gpu, name) for name in nulls} == dict.fromkeys(nulls)
    assert {found.gpu.null_because[name] for name in nulls} == {why}


def test_unreadable_lines_are_listed() -> None:
    cut = msgspec.structs.replace(node(), unreadable=["node-n1.jsonl:3 cut", "more"])
    found = summarise([cut], (T0 + 2, T0 + 8), 10)
    assert found.notes == ["2 lines could not be read (first: node-n1.jsonl:3 cut)"]


# --- the files ------------------------------------------------------------------------------------------


def write(folder: Path, *nodes: NodeRecord) -> None:
    folder.mkdir(exist_ok=True)
    for each in nodes:
        lines = [line for line in (each.facts, *each.samples, each.end) if line is not None]
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        (folder / f"node-{each.name}.jsonl").write_bytes(text)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    nodes = [node("a"), node("b", count=0), node("c", end=False)]
    write(tmp_path, *nodes)
    (tmp_path / "node_sampler.log").write_text("not a node's file")
    assert list(read(tmp_path)) == nodes
    assert list(read(tmp_path / "missing")) == []


GARBAGE = [b"x", b"{}", b"[]", b"null", b'{"event":"sample"}', b'{"event":"party","time":1}', b"\xff", b"[" * 20_000]


@pytest.mark.parametrize("line", GARBAGE, ids=range(len(GARBAGE)))
def test_a_line_that_cannot_be_read_is_named_and_costs_no_other(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, node())
    path = tmp_path / "node-n1.jsonl"
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + line + b"\n" + b"".join(rest))
    (found,) = read(tmp_path)
    (named,) = found.unreadable
    assert msgspec.structs.replace(found, unreadable=[]) == node()
    assert named.startswith("node-n1.jsonl:2 ")


# --- a run ----------------------------------------------------------------------------------------------


def step(number: int, rank: int = 0, seconds: float | None = 1.0, elapsed: float | None = None) -> Step:
    elapsed = number + 1.0 if elapsed is None else elapsed
    return Step(step=number, seconds=seconds, loss=1.0, tokens=256, rank=rank, elapsed_seconds=elapsed)


def window(first: int | None, last: int | None, counted: int = 1) -> Window:
    return Window(rule="last", first_step=first, last_step=last, counted=counted, settled=True, excluded={})


STARTED = [RankStart(rank=1, unix_seconds=T0 + 100, host="b"), RankStart(rank=0, unix_seconds=T0 + 0.5, host="a")]


def test_a_window_begins_with_the_end_of_the_step_before_it() -> None:
    steps = [step(number) for number in range(8)]
    assert window_unix(STARTED, steps, window(2, 6)) == (T0 + 2.5, T0 + 7.5)
    assert window_unix(STARTED, steps, window(0, 0)) == (T0 + 0.5, T0 + 1.5)
    assert window_unix(STARTED, steps[5:], window(5, 6)) == (T0 + 0.5, T0 + 7.5), (
        "the first that this attempt trained"
    )


def test_without_a_start_or_a_step_there_is_no_window() -> None:
    steps = [step(0), step(1)]
    assert window_unix(STARTED[:1], steps, window(0, 1)) is None
    assert window_unix(STARTED, steps, window(None, None, counted=0)) is None
    assert window_unix(STARTED, [], window(0, 1)) is None
    unknown = msgspec.structs.replace(steps[1], elapsed_seconds=None)
    assert window_unix(STARTED, [steps[0], unknown], window(0, 1)) is None


def record(steps: list[Step]) -> RunRecord:
    return RunRecord(attempt=1, facts=[], steps=steps, ends=[], unreadable=[], started=STARTED)


def on_gpus(benchmark: Benchmark, gpus: int) -> Benchmark:
    hardware = msgspec.structs.replace(benchmark.hardware, kind="gpu")
    return msgspec.structs.replace(benchmark, hardware=hardware, gpus=gpus)


def test_a_runs_energy_is_over_every_step_of_its_window(benchmark_value: Benchmark) -> None:
    """300 W over the 5 s of steps 2 to 6; step 4 is not counted, its energy and its tokens are."""
    steps = [step(number) for number in range(9)]
    marked = [msgspec.structs.replace(s, excluded_because="slow" if s.step == 4 else None) for s in steps]
    benchmark = on_gpus(benchmark_value, 2)
    found, why = of_run([node()], benchmark, record(steps), marked, window(2, 6, counted=4))
    assert (found is not None, why) == (True, "")
    assert found.gpu.energy_joules == pytest.approx(1500)
    assert found.gpu.joules_per_token == pytest.approx(1500 / (5 * benchmark.tokens_per_step))
    failed, _ = of_run([node()], benchmark, record(steps), marked, window(2, 6), "the run failed")
    assert failed.gpu.null_because["joules_per_token"] == "the run failed"


# --- what people read -----------------------------------------------------------------------------------


def test_the_rows_of_a_run_with_gpus() -> None:
    def rows(second: int, gpu: int, row: GpuSample) -> GpuSample:
        slow = gpu == 1
        changes = {"sm_clock_mhz": 1500, "throttle_reasons": 0x44 if second < 5 else 4} if slow else {}
        return msgspec.structs.replace(row, **changes, ecc_uncorrected=int(slow and second > 4))

    found = figures(node("a", rows=rows), node("b"), tokens=900)
    assert telemetry_rows(found, rank_spread([step(1), step(1, rank=1, seconds=1.5)], [1], [])) == [
        ("energy", "3.6 kJ, 4 J per token, 500 W of 700 per GPU"),
        ("SM clock", "1755 MHz median, limit 1980 MHz; the slowest is GPU 1 of a, 1500 MHz (-14.5%)"),
        ("throttled", "software power cap 25%, hardware thermal 11% of the samples"),
        ("GPU errors", "1 new ECC errors"),
        ("host", "CPU 50% busy, at most 8 GB of host memory used (2 nodes)"),
        (
            "ranks",
            f"2 ranks, 40.00% between the slowest (rank 1) and the fastest (rank 0)\n{CAVEAT}",
        ),
    ]


# --- ranks ----------------------------------------------------------------------------


def spread_of(
    medians: dict[int, float], started: Sequence[RankStart] = (), counted: Sequence[int] = (1, 2, 3)
) -> RankSpread | None:
    """Three steps of each rank around its median; the first step, which compiles, is not counted."""
    times = {0: 50.0, 1: 0.9, 2: 1.0, 3: 1.1}
    steps = [step(n, rank, middle * time) for rank, middle in medians.items() for n, time in times.items()]
    return rank_spread(steps, counted, started)


def test_the_slowest_rank_is_named_with_its_host() -> None:
    hosts = [RankStart(rank=rank, unix_seconds=T0, host=f"n{rank // 2}") for rank in range(4)]
    found = spread_of({0: 1.0, 1: 1.25, 2: 1.0, 3: 0.9}, hosts)
    assert (found.ranks, found.without_times) == (4, 0)
    assert (found.slowest.rank, found.slowest.host, found.slowest.seconds_per_step) == (1, "n0", 1.25)
    assert (found.fastest.rank, found.fastest.host, found.fastest.seconds_per_step) == (3, "n1", 0.9)
    assert found.spread == pytest.approx(0.35)
    assert [time.rank for time in found.worst] == [1, 0, 2, 3]
    assert found.notes[0] == CAVEAT
    assert "do not prove equal machines" in CAVEAT


def test_a_rank_alone_is_not_compared() -> None:
    assert spread_of({0: 1.0}) is None
    assert spread_of({}) is None
    assert telemetry_rows(None, None) == []


def test_a_rank_without_times_is_counted() -> None:
    steps = [step(1, rank=0), step(1, rank=1), step(1, rank=2, seconds=None)]
    started = [RankStart(rank=rank, unix_seconds=T0, host="a") for rank in range(4)]
    found = rank_spread(steps, [1], started)
    assert (found.ranks, found.without_times) == (2, 2)
    assert found.slowest.host == "a"
    unnamed = rank_spread(steps, [1], [])
    assert (unnamed.slowest.host, unnamed.without_times) == (None, 1)


def test_ranks_that_begin_late_are_named_the_last_first() -> None:
    late = {0: 0.0, 1: 2.5, 2: 0.25}
    started = [RankStart(rank=rank, unix_seconds=T0 + seconds, host=f"n{rank}") for rank, seconds in late.items()]
    found = spread_of(dict.fromkeys(late, 1.0), started)
    assert [(rank.rank, rank.host, rank.seconds_late) for rank in found.latest] == [
        (1, "n1", 2.5),
        (2, "n2", 0.25),
        (0, "n0", 0.0),
    ]
    assert any("clock" in note for note in found.notes)
    unsaid = spread_of({0: 1.0, 1: 1.0})
    assert (unsaid.latest, unsaid.notes) == ([], [CAVEAT])
