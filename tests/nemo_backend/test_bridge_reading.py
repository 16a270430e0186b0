"""Logs of Megatron-Bridge in a phase folder: what is known of a run, and how it ended."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.values import Benchmark, RunRecord
from nemo_backend import BACKEND, bridge_reading

# The lines that Megatron-Bridge 0.6.2 and Megatron-core 0.19.2 print, in their order; those between are omitted.
SETUP = """\
> initializing torch distributed ...
> initialized tensor model parallel with size {tensor}
> initialized pipeline model parallel with size {pipeline}
time to initialize megatron (seconds): 12.345
[after megatron is initialized] datetime: 2026-11-21 10:00:00\x20
"""
PARAMETERS = (
    " > number of parameters on (tensor, gtp_remat, pipeline) model parallel rank"
    " ({tensor}, 0, {pipeline}): {count}\n"
)
ADAPTERS = """\
Applying PEFT transformation...
PEFT Statistics:
  Total parameters: 70,000,000
  Trainable parameters: 12,345
  Trainable percentage: 0.10%
"""
DONE = "[after training is done] datetime: 2026-11-21 10:05:00 \n"
STEP = (
    " [2026-11-21 10:01:{number:02d}] iteration {number:8d}/       4 | consumed samples: {samples:12d} |"
    " elapsed time per iteration (ms): {milliseconds:.1f} | throughput per GPU (TFLOP/s/GPU): 455.1 |"
    " learning rate: 3.000000E-06 | global batch size:   128 |{loss} loss scale: 1.0 | grad norm: 1.490 |"
    " number of skipped iterations: {skipped:3d} | number of nan iterations: {nan:3d} |\n"
)


def setup(tensor: int = 1, pipeline: int = 1) -> str:
    return SETUP.format(tensor=tensor, pipeline=pipeline)


def step(number: int, *, loss: bool = True, skipped: int = 0, nan: int = 0) -> str:
    text = f" lm loss: {12 - number / 10:.6E} |" if loss else ""
    samples, milliseconds = 128 * number, 7900.0 + number
    return STEP.format(number=number, samples=samples, milliseconds=milliseconds, loss=text, skipped=skipped, nan=nan)


def steps(count: int = 4) -> str:
    return "".join(step(number) for number in range(1, count + 1))


@pytest.fixture(scope="module")
def bridge(resolved: Callable[..., Benchmark]) -> Benchmark:
    return resolved("llama3_70b", engine="bridge", dtype="bf16", gpus=64)


@pytest.fixture
def read(bridge: Benchmark, tmp_path: Path) -> Callable[[dict[int, str]], RunRecord]:
    def written(logs: dict[int, str]) -> RunRecord:
        for rank, text in logs.items():
            (tmp_path / f"rank-{rank}.log").write_text(text)
        return BACKEND.read_phase(bridge, tmp_path, 1)

    return written


Read = Callable[[dict[int, str]], RunRecord]


def test_steps_are_the_last_ranks_and_called_rank_0s(read: Read) -> None:
    record = read({0: setup() + DONE, 9: "", 10: steps()})
    assert [(s.step, s.rank, s.attempt) for s in record.steps] == [(n, 0, 1) for n in range(4)]
    assert [s.seconds for s in record.steps] == [7.901, 7.902, 7.903, 7.904]
    assert (record.steps[0].loss, record.steps[0].framework_tflops_per_device) == (11.9, 455.1)
    (facts,) = record.facts
    assert any("0.1 ms" in note for note in facts.notes)
    assert any("iteration N is step N-1" in note for note in facts.notes)
    assert record.unreadable == []


def test_a_line_that_cannot_be_read_is_named(read: Read) -> None:
    record = read({0: setup(), 1: steps(2) + step(3)[:90] + "\n" + step(4)})
    assert [s.step for s in record.steps] == [0, 1, 3]
    (line,) = record.unreadable
    assert line.startswith("rank-1.log:3 ")


def test_following_gives_each_step_once(bridge: Benchmark, tmp_path: Path) -> None:
    news = BACKEND.follow(bridge, tmp_path, 1)
    assert news() == []
    last = tmp_path / "rank-63.log"
    last.write_text(step(1) + step(2)[:100])
    assert [s.step for s in news()] == [0]
    with last.open("a") as log:
        log.write(step(2)[100:] + step(3))
    assert [(s.step, s.rank, s.attempt) for s in news()] == [(1, 0, 1), (2, 0, 1)]
    assert news() == []


def event(name: str, **fields: object) -> str:
    return json.dumps({"event": name, **fields}) + "\n"


def test_a_worker_has_the_steps_and_bridges_log_its_own_times(read: Read, bridge: Benchmark, tmp_path: Path) -> None:
    """The loss is that of the last rank, whose pipeline stage computes it."""
    follow = BACKEND.follow(bridge, tmp_path, 1)
    for rank, loss in ((0, None), (63, 6.5)):
        clocked = [event("step", step=n, seconds=7.8, loss=loss, gradient_norm=1.0) for n in range(2)]
        (tmp_path / f"events-rank{rank}.jsonl").write_text("".join(clocked))
    record = read({0: setup(), 63: step(1) + step(2, skipped=1)})
    assert [(s.rank, s.step, s.loss, s.seconds, s.framework_seconds) for s in record.steps] == [
        (0, 0, 6.5, 7.8, 7.901),
        (0, 1, 6.5, 7.8, 7.902),
        (63, 0, 6.5, 7.8, None),
        (63, 1, 6.5, 7.8, None),
    ]
    assert [s.excluded_because for s in record.steps][:2] == [None, "skipped iteration"]
    assert [(s.step, s.loss) for s in follow()] == [(0, 6.5), (1, 6.5)]
    assert follow() == []


def test_without_a_clock_the_log_has_the_steps_and_the_worker_how_it_failed(read: Read, tmp_path: Path) -> None:
    """The worker of an older Megatron-Bridge writes only its end."""
    path = tmp_path / "events-rank0.jsonl"
    path.write_text(event("end", rank=0, status="done", failures=[], notes=[]))
    record = read({0: setup() + DONE, 63: steps()})
    assert ([s.seconds for s in record.steps][:1], [end.status for end in record.ends]) == ([7.901], ["done"])
    path.write_text(event("end", rank=0, status="error", message="no such recipe"))
    assert [end.message for end in read({0: setup()}).ends] == ["no such recipe"]


# --- facts --------------------------------------------------------------------------------------------


def test_what_is_printed_is_known_and_the_rest_is_not(read: Read) -> None:
    parameters = PARAMETERS.format(tensor=0, pipeline=0, count=201)
    (facts,) = read({0: setup() + parameters, 1: steps()}).facts
    assert (facts.rank, facts.process_count, facts.device_count, facts.local_device_count) == (0, 2, 2, 1)
    assert (facts.parameters, facts.trainable_parameters) == (201, 201)
    assert facts.mesh == {"tensor": 1, "pipeline": 1}
    assert (facts.platform, facts.device_kind, facts.versions) == ("cuda", None, {})


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2)])
def test_a_part_of_a_model_is_not_counted_as_the_whole(read: Read, tensor: int, pipeline: int) -> None:
    parameters = PARAMETERS.format(tensor=0, pipeline=0, count=100)
    (facts,) = read({0: setup(tensor, pipeline) + parameters}).facts
    assert (facts.parameters, facts.trainable_parameters) == (None, None)


def test_adapters_are_not_counted(read: Read) -> None:
    (facts,) = read({0: setup() + ADAPTERS + PARAMETERS.format(tensor=0, pipeline=0, count=70_012_345)}).facts
    assert (facts.parameters, facts.trainable_parameters) == (70_012_345, None)


# --- ends ---------------------------------------------------------------------------------------------

OUT_OF_MEMORY = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
FAILED = f"Pretrain failed on rank=1 with {OUT_OF_MEMORY}. Bridge is aborting framework-owned resources\n"


@pytest.mark.parametrize(
    ("rank_0", "rank_1", "ends"),
    [
        ("", "", []),
        (DONE, "", [("done", "")]),
        (DONE, FAILED, [("error", f"rank 1: {OUT_OF_MEMORY}")]),
        *(
            (f"[{line}] datetime: 2026-11-21 10:05:00 \n", "", [("interrupted", line)])
            for line in (
                "exiting program after receiving SIGTERM.",
                "exiting program after 3.5 minutes",
                "exiting program at iteration 10",
                "Exiting program due to straggler detection.",
            )
        ),
    ],
)
def test_how_training_ended(read: Read, rank_0: str, rank_1: str, ends: list[tuple[str, str]]) -> None:
    record = read({0: setup() + rank_0, 1: steps() + rank_1})
    assert [(end.status, end.message) for end in record.ends] == ends


def test_steps_that_trained_nothing_are_failures(read: Read) -> None:
    text = step(1) + step(2, loss=False, skipped=1, nan=1) + step(3, loss=False)
    text += step(4).replace("grad norm: 1.490", "grad norm: nan")
    (end,) = read({0: setup() + DONE, 1: text}).ends
    assert end.failures == [
        "Megatron reported 1 of 4 steps as 'nan iteration', first step 1",
        "Megatron reported 1 of 4 steps as 'gradient norm not finite', first step 3",
        "1 of 4 steps have a loss that is not a number, first step 2",
    ]


@pytest.mark.parametrize("rank_1", [FAILED.replace("GiB", "GiB: “größer als 日本 🚀”"), DONE], ids=["failed", "done"])
def test_no_size_of_the_pieces_changes_what_is_read(read: Read, monkeypatch: pytest.MonkeyPatch, rank_1: str) -> None:
    rank_0 = "ü日本🚀\n" + setup() + PARAMETERS.format(tensor=0, pipeline=0, count=70_000_000) + "é" * 99 + "\n"
    logs = {0: rank_0, 1: steps() + rank_1}
    whole = read(logs)
    assert (whole.facts[0].parameters, len(whole.steps), len(whole.ends)) == (70_000_000, 4, 1)
    for size in range(1, 300, 7):
        monkeypatch.setattr(bridge_reading, "PIECE_BYTES", size)
        assert read(logs) == whole, size
