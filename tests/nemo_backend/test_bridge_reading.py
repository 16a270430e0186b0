"""A phase folder of Megatron-Bridge: the worker's steps, with the loss and Bridge's own time from the last rank."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.values import Benchmark
from nemo_backend import BACKEND

# The line that Megatron-Bridge 0.6.2 prints.
STEP = (
    " [2026-11-21 10:01:{number:02d}] iteration {number:8d}/       4 | consumed samples: {samples:12d} |"
    " elapsed time per iteration (ms): {milliseconds:.1f} | throughput per GPU (TFLOP/s/GPU): 455.1 |"
    " learning rate: 3.000000E-06 | global batch size:   128 | lm loss: 6.500000E+00 | loss scale: 1.0 |"
    " grad norm: 1.490 | number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |\n"
)


def step(number: int, *, skipped: int = 0) -> str:
    return STEP.format(number=number, samples=128 * number, milliseconds=7900.0 + number, skipped=skipped)


@pytest.fixture(scope="module")
def bridge(resolved: Callable[..., Benchmark]) -> Benchmark:
    return resolved("llama3_70b", engine="bridge", dtype="bf16", gpus=64)


def test_a_worker_has_the_steps_and_bridges_log_its_own_times(bridge: Benchmark, tmp_path: Path) -> None:
    """The loss is that of the last rank, whose pipeline stage computes it."""
    follow = BACKEND.follow(bridge, tmp_path, 1)
    assert follow() == []
    for rank, loss in ((0, None), (63, 6.5)):
        steps = [{"event": "step", "step": n, "seconds": 7.8, "loss": loss, "gradient_norm": 1.0} for n in range(3)]
        (tmp_path / f"events-rank{rank}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in steps))
    (tmp_path / "rank-63.log").write_text(step(1) + step(2, skipped=1) + step(3)[:90])  # killed while it printed
    record = BACKEND.read_phase(bridge, tmp_path, 1)
    assert [(s.rank, s.step, s.loss, s.seconds, s.framework_seconds) for s in record.steps] == [
        (0, 0, 6.5, 7.8, 7.901),
        (0, 1, 6.5, 7.8, 7.902),
        (0, 2, 6.5, 7.8, None),
        *((63, number, 6.5, 7.8, None) for number in range(3)),
    ]
    assert [s.excluded_because for s in record.steps][:2] == [None, "skipped iteration"]
    assert [(s.step, s.loss) for s in follow()] == [(0, 6.5), (1, 6.5), (2, 6.5)]
    assert follow() == []
