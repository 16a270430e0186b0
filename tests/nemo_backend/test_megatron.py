"""What Megatron-core asks of both engines: dimensions, schedules, datasets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.errors import RequestError
from benchmarks.values import Benchmark
from nemo_backend import BACKEND
from nemo_backend.megatron import DIMENSIONS
from tests.nemo_backend.a_dataset import write_dataset

Resolve = Callable[..., Benchmark]

TENSOR = "trainer.strategy.tensor_model_parallel_size"
PIPELINE = "trainer.strategy.pipeline_model_parallel_size"
VIRTUAL = "trainer.strategy.virtual_pipeline_model_parallel_size"
GROUP = "trainer.strategy.microbatch_group_size_per_vp_stage"


def refusal(resolved: Resolve, model: str = "llama31_70b", **wanted: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        resolved(model, **wanted)
    return caught.value


# --- dimensions -----------------------------------------------------------------------------------------


def test_every_dimension_is_a_setting_of_both_engines_and_reserved_in_both() -> None:
    for place in ("model.config", "model"):
        names = {f"{place}.{name}" for name in DIMENSIONS}
        assert names <= BACKEND.settings().keys()
        assert names <= BACKEND.reserved_settings.keys()


# --- schedules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulation", [4, 8, 12, 60, 64, 68])
def test_micro_steps_that_fill_the_interleaved_pipeline(resolved: Resolve, accumulation: int) -> None:
    benchmark = resolved("llama31_70b", {"gradient_accumulation": accumulation})
    assert benchmark.global_batch_size == 2 * accumulation


@pytest.mark.parametrize("accumulation", [1, 2, 3, 5, 6, 7, 63, 65])
def test_micro_steps_that_leave_stages_empty_are_refused(resolved: Resolve, accumulation: int) -> None:
    error = refusal(resolved, chosen={"gradient_accumulation": accumulation})
    assert error.what == (f"gradient accumulation ({accumulation}) does not fill the interleaved pipeline (4 stages)")
    assert "GA = GBS / (MBS x DP)" in error.why
    assert error.next_command == "--set=gradient_accumulation=N with N a multiple of 4"


@pytest.mark.parametrize(
    ("group", "accumulation", "fits"),
    [(4, 64, True), (6, 64, True), (7, 64, False), (3, 64, False), (64, 64, True), (65, 64, False), (0, 64, False)],
)
def test_a_group_of_micro_steps_of_its_own(resolved: Resolve, group: int, accumulation: int, fits: bool) -> None:
    """64 = 10 x 6 + 4 keeps four stages busy, 64 = 9 x 7 + 1 does not; a group is no smaller than the pipeline."""
    chosen = {GROUP: group, "gradient_accumulation": accumulation}
    if fits:
        assert resolved("llama31_70b", chosen).knobs[GROUP] == group
    else:
        assert "does not fill the interleaved pipeline" in refusal(resolved, chosen=chosen).what


def test_interleaving_needs_a_pipeline(resolved: Resolve) -> None:
    error = refusal(resolved, "llama31_8b", chosen={VIRTUAL: 2})
    assert error.what == "a virtual pipeline of 2 needs a pipeline"
    assert f"--set={VIRTUAL}=1" in error.next_command
    assert f"--set={PIPELINE}=N" in error.next_command


@pytest.mark.parametrize(
    ("virtual", "fits"), [(5, True), (20, True), (10, True), (3, False), (6, False), (40, False)]
)
def test_the_parts_of_a_stage_divide_its_layers(resolved: Resolve, virtual: int, fits: bool) -> None:
    """80 layers over 4 stages are 20 a stage."""
    if fits:
        assert resolved("llama31_70b", {VIRTUAL: virtual}).parallelism.virtual_pipeline == virtual
    else:
        error = refusal(resolved, chosen={VIRTUAL: virtual})
        assert error.what == f"layers (80) not divisible by pipeline x virtual pipeline ({4 * virtual})"


@pytest.mark.parametrize(("length", "fits"), [(8192, True), (8188, True), (8190, False), (8191, False)])
def test_a_context_share_is_a_piece_from_the_front_and_one_from_the_back(
    resolved: Resolve, length: int, fits: bool
) -> None:
    if fits:
        assert resolved("llama31_70b", {"sequence_length": length}).sequence_length == length
    else:
        assert (
            f"sequence length ({length}) not divisible by"
            in refusal(resolved, chosen={"sequence_length": length}).what
        )


def test_a_sequence_is_shared_out_only_where_a_matrix_is(resolved: Resolve) -> None:
    error = refusal(resolved, chosen={TENSOR: 1})
    assert error.what == "sequence parallelism needs tensor parallelism"
    assert error.where == "--set=trainer.strategy.sequence_parallel"
    resolved("llama31_70b", {TENSOR: 1, "trainer.strategy.sequence_parallel": "false"})


@pytest.mark.parametrize(
    ("tensor", "what"), [(8, []), (3, []), (5, ["vocabulary (128256) not divisible by tensor (5)"])]
)
def test_the_vocabulary_is_shared_out_evenly(resolved: Resolve, tensor: int, what: list[str]) -> None:
    benchmark = resolved("llama31_70b")
    share = msgspec.structs.replace(benchmark.parallelism, tensor=tensor)
    found = BACKEND.refusals(msgspec.structs.replace(benchmark, parallelism=share))
    assert [error.what for error in found] == what


# --- data on disk ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "vocabulary_size", "words"),
    [
        ("text", 512, "cannot read a dataset of format 'text'"),
        ("megatron", 513, "the dataset knows 513 tokens, llama3_tiny 512"),
    ],
)
def test_a_dataset_that_cannot_be_trained_on_is_refused(
    resolved: Resolve, tmp_path: Path, kind: str, vocabulary_size: int, words: str
) -> None:
    error = refusal(
        resolved, "llama3_tiny", data=str(write_dataset(tmp_path, format=kind, vocabulary_size=vocabulary_size))
    )
    assert words in error.what
    assert error.where == f"--data={tmp_path}"


def test_a_folder_without_a_manifest_is_refused(resolved: Resolve, tmp_path: Path) -> None:
    assert "no dataset.json" in refusal(resolved, "llama3_tiny", data=str(tmp_path)).what
