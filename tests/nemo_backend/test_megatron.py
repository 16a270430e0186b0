"""What Megatron-core asks of both engines: dimensions, schedules, datasets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import RequestError
from benchmarks.values import Benchmark
from tests.megatron_dataset import write_dataset

Resolve = Callable[..., Benchmark]

TENSOR = "trainer.strategy.tensor_model_parallel_size"
VIRTUAL = "trainer.strategy.virtual_pipeline_model_parallel_size"
GROUP = "trainer.strategy.microbatch_group_size_per_vp_stage"
SEQUENCE_PARALLEL = "trainer.strategy.sequence_parallel"
ACCUMULATION = "gradient_accumulation"


# llama31_70b is sharded by tensor 4, pipeline 4 of 5 parts, context 2.
@pytest.mark.parametrize(
    "chosen",
    [
        *({ACCUMULATION: number} for number in (4, 8, 12, 60, 64, 68)),
        {GROUP: 4, ACCUMULATION: 64},
        {GROUP: 6, ACCUMULATION: 64},  # 64 = 10 x 6 + 4 keeps four stages busy
        {GROUP: 64, ACCUMULATION: 64},
        *({VIRTUAL: number} for number in (5, 10, 20)),  # 80 layers over 4 stages are 20 a stage
        *({"sequence_length": number} for number in (8192, 8188)),
        {TENSOR: 1, SEQUENCE_PARALLEL: "false"},
    ],
    ids=str,
)
def test_what_megatron_can_schedule(resolved: Resolve, chosen: dict[str, Any]) -> None:
    benchmark = resolved("llama31_70b", chosen)
    assert benchmark.batch.gradient_accumulation == chosen.get(ACCUMULATION, benchmark.batch.gradient_accumulation)


def test_a_dataset_without_its_pairs_of_files_is_refused(resolved: Resolve, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no \.idx file") as caught:
        resolved(data=str(tmp_path))
    assert str(tmp_path) in caught.value.where
    tokens = write_dataset(tmp_path) / "t_0.bin"
    for change, words in ((tokens.unlink, r"no t_0\.bin"), (tokens.touch, r"t_0\.bin is empty")):
        change()
        with pytest.raises(RequestError, match=words):
            resolved(data=str(tmp_path))
