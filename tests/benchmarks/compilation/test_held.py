"""What a device holds at the peak, beside the plan: the flagship as XLA compiled it for 64 H100s."""

from pathlib import Path

import msgspec
import pytest

from benchmarks.compilation.compiled import Compiled, Held
from benchmarks.compilation.held import kind_of, kinds, place_of
from benchmarks.configs import Configs
from benchmarks.model.capacity import memory_by_part
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark
from jax_backend import BACKEND

SAMPLE = Path(__file__).with_name("compiled") / "llama2_70b_64_bf16.json"


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    request = Request(backend="jax", model="llama2_70b", hardware="h100", dtype="bf16", gpus=64)
    return resolve(request, Configs(), BACKEND)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return msgspec.json.decode(SAMPLE.read_bytes(), type=Compiled)


def test_each_part_of_the_plan_is_that_of_the_buffers(benchmark: Benchmark, compiled: Compiled) -> None:
    parts = memory_by_part(benchmark, BACKEND.storage(benchmark))
    found = kinds(benchmark, compiled, parts)
    assert sum(kind.held_bytes for kind in found) == pytest.approx(compiled.peak_bytes)
    assert sum(kind.planned_bytes for kind in found) == pytest.approx(sum(parts.values()))
    for kind in found:
        assert kind.planned_bytes == pytest.approx(kind.held_bytes, abs=0.01 * compiled.peak_bytes), kind.name


def test_the_largest_are_the_activations_that_are_kept(benchmark: Benchmark, compiled: Compiled) -> None:
    largest = compiled.held[:5]
    assert [kind_of(one, benchmark) for one in largest] == ["kept activations"] * 5
    assert sum(one.bytes for one in largest) == pytest.approx(34.9e9, rel=1e-3)


def held(op: str, layer: str = "", part: str = "elsewhere") -> Held:
    return Held(
        bytes=1e9, shape="bf16[2]", name="fusion.3{1}", instruction="fusion", op=op, layer=layer, part=part,
        argument=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        (held("state['model']['decoder']['mlp']['wi_0']['kernel'].value"), "decoder.mlp.wi_0.kernel"),
        (held("jit(train_step)/jvp()/while/dot_general", "MlpBlock", "forward"), "MlpBlock dot_general, forward"),
        (held(""), "fusion.3"),
    ],
)
def test_a_buffer_says_which_layer_and_operation_it_is_of(buffer: Held, words: str) -> None:
    assert place_of(buffer) == words
