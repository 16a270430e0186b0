"""What is asked of the program that traces a step; the trace itself is in tests/end_to_end/test_traced.py."""

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.compilation.traced import TraceJob
from benchmarks.errors import RequestError
from benchmarks.values import Benchmark
from nemo_backend import BACKEND

Resolve = Callable[..., Benchmark]
WEIGHTS = {"checkpoint.pretrained_checkpoint": "/weights"}


@pytest.fixture
def job(resolved: Resolve) -> Callable[..., TraceJob]:
    return lambda *request, **wanted: BACKEND.compile_job("a job", resolved(*request, **wanted))


def test_megatron_gets_the_settings_of_the_run(job: Callable[..., TraceJob]) -> None:
    found = job("llama31_70b", {"model.config.recompute_granularity": "selective"}, gpus=64)
    assert found.model["recompute_granularity"] == "selective"
    assert (found.model["num_layers"], found.model["vocab_size"]) == (80, 128256)
    assert found.parallelism == {
        "data": 2,
        "tensor": 4,
        "pipeline": 4,
        "context": 2,
        "virtual_pipeline": 5,
        "expert": 1,
    }
    assert (found.stages, found.micro_batches, found.traced_micro_batches) == ([0, 1, 2, 3], 64, 8)
    assert found.ddp == {"grad_reduce_in_fp32": False, "use_distributed_optimizer": True}
    assert "2.20.0.dev0" in found.replaced["kernels"]
    assert not found.adapters


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"engine": "nemo"}, ("native", False)),
        ({"engine": "bridge", "chosen": WEIGHTS}, ("te", True)),
    ],
)
def test_adapters_and_the_loss_are_those_of_the_engine(
    job: Callable[..., TraceJob], request_: dict[str, Any], expected: tuple[str, bool]
) -> None:
    found = job("llama3_70b", task="lora", hardware="h100", gpus=8, dtype="bf16", **request_)
    assert found.adapters == {"target_modules": ["linear_qkv"], "dim": 16, "alpha": 32, "dropout": 0.0}
    assert (found.model["cross_entropy_fusion_impl"], found.model["cross_entropy_loss_fusion"]) == expected


def test_without_transformer_engine_megatrons_own_attention_is_traced(job: Callable[..., TraceJob]) -> None:
    found = job("llama32_1b", hardware="h100", gpus=1, dtype="bf16")
    assert not found.fused_attention
    assert not found.fused_rope
    assert "kernels" not in found.replaced


def test_what_only_the_real_program_does_is_refused(job: Callable[..., TraceJob]) -> None:
    with pytest.raises(RequestError, match="use_megatron_fsdp"):
        job("llama3_70b", engine="bridge", hardware="gb200", gpus=64)
