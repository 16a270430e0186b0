"""The predicted memory of layouts, against the memory of the programs that MaxText and XLA make of them.

A small model on 8 virtual devices, with the same 8 sequences a step in every layout.
"""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.planning import capacity
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Model
from jax_backend import BACKEND, compiling, planning
from launch.running.local import inherited_environment
from tests.end_to_end.runs import LIMIT_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.every_program]

DEVICES = SEQUENCES = 8
# (fsdp, data, tensor, context)
LAYOUTS = {
    "fsdp 8": (8, 1, 1, 1),
    "fsdp 2 x tensor 4": (2, 1, 4, 1),
    "fsdp 4 x context 2": (4, 1, 1, 2),
    "fsdp 4 x data 2": (4, 2, 1, 1),
    "data 8": (1, 8, 1, 1),
}
# Of weights, activations, logits and scores none is small beside the others.
DIMENSIONS = {
    "layers": 4,
    "hidden_size": 512,
    "ffn_hidden_size": 1408,
    "attention_heads": 8,
    "query_groups": 8,
    "head_dim": 64,
    "vocabulary_size": 4096,
    "max_sequence_length": 512,
}
# XLA:CPU holds more than is predicted where gradients are large, and there in float32 what a GPU holds in bfloat16.
TOO_HIGH, TOO_LOW = 1.06, 0.88


class SmallModels(Configs):
    """The repository's configs, with models of these dimensions."""

    def model(self, name: str) -> Model:
        return msgspec.structs.replace(super().model(name), **DIMENSIONS)


def benchmark(fsdp: int, data: int, tensor: int, context: int) -> Benchmark:
    axes = {"fsdp": fsdp, "data": data, "tensor": tensor, "context": context}
    settings = {f"ici_{axis}_parallelism": str(size) for axis, size in axes.items()}
    settings |= {"micro_batch_size": str(SEQUENCES // (fsdp * data)), "remat_policy": "full"}
    settings["sequence_length"] = str(DIMENSIONS["max_sequence_length"])
    request = Request(
        backend="jax", model="llama2_tiny", hardware="cpu", dtype="bf16", gpus=DEVICES, settings=settings
    )
    return resolve(request, SmallModels(), BACKEND)


@pytest.fixture(scope="module")
def benchmarks() -> dict[str, Benchmark]:
    return {name: benchmark(*axes) for name, axes in LAYOUTS.items()}


@pytest.fixture(scope="module")
def predicted(benchmarks: dict[str, Benchmark]) -> dict[str, float]:
    return {name: capacity.total_bytes(asked, BACKEND.storage(asked)) for name, asked in benchmarks.items()}


@pytest.fixture(scope="module")
def compiled(
    benchmarks: dict[str, Benchmark], jax_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, float]:
    """Bytes of a device by the compiler's own account."""
    place = str(tmp_path_factory.mktemp("layouts"))
    settings = [
        [word.replace("{phase_dir}", place) for word in planning.maxtext_argv(asked, compiling.settings(asked))]
        for asked in benchmarks.values()
    ]
    done = subprocess.run(
        [str(jax_python), "-P", str(Path(__file__).with_name("compile_layouts.py")), str(DEVICES)],
        input=json.dumps(settings),
        env={**inherited_environment(), **compiling.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * LIMIT_SECONDS,  # five programs, one after the other
    )
    assert done.returncode == 0, done.stderr
    found = dict(zip(benchmarks, json.loads(done.stdout.splitlines()[-1]), strict=True))
    for name, size in found.items():
        print(f"{name:<20} compiled {size / 1e6:8.2f} MB", file=sys.stderr)
    return found


def test_layouts_rank_as_their_programs_do(predicted: dict[str, float], compiled: dict[str, float]) -> None:
    assert sorted(predicted, key=predicted.__getitem__) == sorted(compiled, key=compiled.__getitem__)


def test_each_prediction_is_near_its_program(predicted: dict[str, float], compiled: dict[str, float]) -> None:
    ratios = {name: predicted[name] / compiled[name] for name in compiled}
    assert {name: ratio for name, ratio in ratios.items() if not TOO_LOW < ratio < TOO_HIGH} == {}
