"""What Megatron-core asks of both engines: dimensions, schedules, datasets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import RequestError
from benchmarks.values import Benchmark
from nemo_backend.megatron import tokenizer_size
from tests.megatron_dataset import write_dataset

Resolve = Callable[..., Benchmark]

TENSOR = "trainer.strategy.tensor_model_parallel_size"
VIRTUAL = "trainer.strategy.virtual_pipeline_model_parallel_size"
GROUP = "trainer.strategy.microbatch_group_size_per_vp_stage"
SEQUENCE_PARALLEL = "trainer.strategy.sequence_parallel"
ACCUMULATION = "gradient_accumulation"


# llama31_70b is shared out by tensor 4, pipeline 4 of 5 parts, context 2.
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


@pytest.mark.parametrize(
    ("dataset", "what"),
    [
        ({"vocabulary_size": 513}, "the dataset knows 513 tokens, llama3_tiny 512"),
        (None, "no .idx file"),
    ],
)
def test_a_dataset_that_cannot_be_trained_on_is_refused(
    resolved: Resolve, tmp_path: Path, dataset: dict[str, Any] | None, what: str
) -> None:
    if dataset:
        write_dataset(tmp_path, **dataset)
    with pytest.raises(RequestError, match=what) as caught:
        resolved(data=str(tmp_path))
    assert str(tmp_path) in caught.value.where


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("t_0.bin", b"\0" * 12, "t_0.bin has 12 bytes, t_0.idx says 16"),
        ("t_0.bin", None, "t_0.bin"),
        ("t_0.idx", b"", "no index of Megatron's"),
        ("t_0.idx", b"x" * 200, "no index of Megatron's"),
        ("tokenizer.json", b"{}", "the tokenizer cannot be read"),
    ],
)
def test_a_dataset_that_is_not_whole_is_refused(
    resolved: Resolve, tmp_path: Path, name: str, data: bytes | None, what: str
) -> None:
    path = write_dataset(tmp_path) / name
    path.write_bytes(data) if data is not None else path.unlink()
    with pytest.raises(RequestError, match=what):
        resolved(data=str(tmp_path))


def test_a_dataset_without_its_tokenizer_is_taken(resolved: Resolve, tmp_path: Path) -> None:
    (write_dataset(tmp_path, vocabulary_size=10**6) / "tokenizer.json").unlink()
    assert resolved(data=str(tmp_path)).data == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('{"model": {"type": "BPE", "vocab": {"a": 0, "b": 7}}, "added_tokens": [{"id": 9, "content": "<x>"}]}', 10),
        ('{"model": {"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.0]]}}', 2),
    ],
)
def test_a_tokenizers_size_is_its_largest_number_and_one(tmp_path: Path, text: str, size: int) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    assert tokenizer_size(tmp_path / "tokenizer.json") == size
