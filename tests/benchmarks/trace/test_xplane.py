"""XLA's trace files: a real one is read whole, each layout of devices is known, a damaged one gives one message."""

from pathlib import PurePath

import numpy as np
import pytest

from benchmarks.errors import RequestError
from benchmarks.trace.trace import Trace
from benchmarks.trace.xplane import read_xplane
from tests.benchmarks.trace.made import TRAIN, SpaceMaker, sample

PATH = PurePath("results/run/vm.xplane.pb")
TRAINING = {"hlo_module": TRAIN, "run_id": 7}


@pytest.fixture(scope="module")
def real() -> Trace:
    return read_xplane(sample(), PATH)


def read(maker: SpaceMaker) -> Trace:
    return read_xplane(maker.data(), PATH)


def named(trace: Trace, device: int = 0) -> list[tuple[str, float, float]]:
    """(instruction or else kernel, begin, end) in microseconds."""
    one = trace.devices[device]
    rows = zip(one.operation, one.begins, one.ends, strict=True)
    names = [operation.hlo_op or operation.kernel for operation in trace.operations]
    return [(names[number], begin / 1e6, end / 1e6) for number, begin, end in rows]


# --- a real trace -------------------------------------------------------------------------------


def test_a_real_trace_has_its_devices_marks_and_programs(real: Trace) -> None:
    assert [device.name for device in real.devices] == ["CPU 0", "CPU 1"]
    assert real.host == "vm"
    assert [mark.step for mark in real.marks] == [20, 21, 22, 23, 24]
    training = [known for one, known in zip(real.operations, real.instructions, strict=True) if one.module == TRAIN]
    assert len(training) > 300
    assert None not in training
    assert real.notes == []


# --- layouts ------------------------------------------------------------------------------------

START = 1_795_302_180_000_000_000
KERNEL = {"Stream #1(Compute)": [("k", 0, 1)]}
OTHERS = {"thread": [("fusion.1", 0, 9, {"hlo_op": "fusion.1", **TRAINING})]}
STREAMS = {
    "Stream #13(Compute)": [("nvjet_tst", 5, 2, {"hlo_op": "cublas-gemm.1", "hlo_module": TRAIN})],
    "Stream #14(MemcpyD2H)": [("MemcpyD2H", 6, 3)],
    "XLA Ops": [("cublas-gemm.1", 5, 2)],
    "Steps": [("20", 0, 10)],
}
LINES = {"XLA Ops": [("fusion.1", 1, 2, {"hlo_module": TRAIN})], "XLA Modules": [("jit_train_step", 0, 9)]}
LATER = SpaceMaker().plane("/device:GPU:0", {"Stream #1(Compute)": [("k", 5, 1)]}, timestamp_ns=START + 1000)
ASYNCHRONOUS = [
    ("while.1", 0, 2, {"hlo_op": "while.1", "_p": 5, **TRAINING}),
    ("dot.1", 3, 2, {"hlo_op": "dot.1", "_p": 6, **TRAINING}),
    ("end: dot.1", 4, 0, {"_c": 6}),  # earlier than what its own thread says: the later one holds
    ("end: while.1", 50, 0, {"_c": 5}),
    ("end: other", 70, 0, {"_c": 99}),
]
MARKED = [("train", n * 10, 1, {"step_num": n}) for n in (5, 6, 7)] + [("eval", 31, 1, {"step_num": 0})]


@pytest.mark.parametrize(
    ("maker", "names", "operations"),
    [
        pytest.param(
            SpaceMaker().plane("/device:GPU:1", STREAMS),
            *(["GPU 1"], [("cublas-gemm.1", 5, 7), ("MemcpyD2H", 6, 9)]),
            id="a GPU is its streams, with HLO beside each kernel",
        ),
        pytest.param(
            SpaceMaker().plane("/device:TPU:0", LINES),
            *(["TPU 0"], [("fusion.1", 1, 3)]),
            id="a TPU is its line of operations",
        ),
        pytest.param(
            SpaceMaker().plane("/device:GPU:10", KERNEL).plane("/device:GPU:2", KERNEL).plane("/host:CPU", OTHERS),
            *(["GPU 2", "GPU 10"], [("k", 0, 1)]),
            id="by their numbers; what the host does beside them is not theirs",
        ),
        pytest.param(
            SpaceMaker().plane("/host:CPU", {"thread": ASYNCHRONOUS}),
            *(["CPU 0"], [("while.1", 0, 50), ("dot.1", 3, 5)]),
            id="a CPU's operation ends where its end event is",
        ),
        pytest.param(
            LATER.times(START, START + 10**9),
            *(["GPU 0"], [("k", 6, 7)]),
            id="times of day are counted from the profile's start",
        ),
    ],
)
def test_where_a_devices_operations_lie(
    maker: SpaceMaker, names: list[str], operations: list[tuple[str, float, float]]
) -> None:
    trace = read(maker)
    assert [device.name for device in trace.devices] == names
    assert named(trace) == operations


def test_the_devices_of_a_cpu_are_known_by_their_number() -> None:
    events = [
        ("dot.1", 0, 1, {"hlo_op": "dot.1", **TRAINING}),  # the first leaves its number out
        ("dot.1", 2, 1, {"hlo_op": "dot.1", "device_ordinal": 3, **TRAINING}),
        ("$train.py:1 f", 0, 9),
    ]
    trace = read(SpaceMaker().plane("/host:CPU", {"thread": events}))
    assert [(device.name, len(device.begins)) for device in trace.devices] == [("CPU 0", 1), ("CPU 3", 1)]


def test_the_marks_are_those_of_the_commonest_name() -> None:
    trace = read(SpaceMaker().plane("/host:CPU", {"python": MARKED}))
    assert [(mark.step, mark.begin) for mark in trace.marks] == [(5, 50 * 10**6), (6, 60 * 10**6), (7, 70 * 10**6)]


def test_what_the_profiler_says_is_a_note() -> None:
    maker = SpaceMaker().plane("/device:GPU:0", {"Stream #1": [("k", 5, 1)]})
    maker.space.errors.append("Dropped 12 events")
    assert read(maker).notes == ["the profiler reports: Dropped 12 events"]


# --- invalid traces -----------------------------------------------------------------------------

DAMAGED = bytearray(sample())
DAMAGED[len(DAMAGED) // 2 : len(DAMAGED) // 2 + 400] = b"\xff" * 400


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x1f\x8b\x08\x00" + bytes(range(256)),
        SpaceMaker().plane("/host:nothing", {}).data(),
        np.random.default_rng(3).bytes(5000),
        sample()[:1000],
        sample()[:-1000],
        bytes(DAMAGED),
    ],
)
def test_a_foreign_or_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        read_xplane(data, PATH)
