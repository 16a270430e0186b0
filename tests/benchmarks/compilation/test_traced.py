"""A trace held against the formulas: LoRA on a tiny Llama in two stages, really traced with Megatron-core 0.15.3."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest

from benchmarks.compilation import traced_report, variants
from benchmarks.compilation.traced import TracedProgram, TraceReport
from benchmarks.configs import Configs
from benchmarks.errors import RunError
from benchmarks.pages.compiled import compiled_parts
from benchmarks.pages.page import page
from benchmarks.request.resolve import Request, resolve
from nemo_backend import BACKEND

SAMPLE = Path(__file__).with_name("llama3_tiny_lora_traced.json")
SETTINGS = {
    "trainer.strategy.pipeline_model_parallel_size": "2", "micro_batch_size": "1", "gradient_accumulation": "4",
}  # fmt: skip


@cache
def program() -> TracedProgram:
    asked = Request(
        backend="nemo", model="llama3_tiny", task="lora", hardware="h100", dtype="bf16", gpus=2, settings=SETTINGS
    )
    benchmark = resolve(asked, Configs(), BACKEND)
    report = msgspec.json.decode(SAMPLE.read_bytes(), type=TraceReport)
    found = variants.program_of(benchmark, BACKEND.storage(benchmark), report)
    assert isinstance(found, TracedProgram)
    return found


def large() -> TracedProgram:
    stages = [msgspec.structs.replace(stage, peak_bytes=90e9) for stage in program().compiled.stages]
    return replace(program(), compiled=msgspec.structs.replace(program().compiled, peak_bytes=90e9, stages=stages))


def test_state_and_peak_are_as_planned() -> None:
    kinds = {kind.name: kind for kind in program().memory}
    for name in ("parameters", "gradients", "optimizer"):
        assert kinds[name].planned_bytes == pytest.approx(kinds[name].held_bytes, rel=0.002)
    assert sum(kind.held_bytes for kind in kinds.values()) == program().peak_bytes == program().fullest.peak_bytes
    assert program().fullest.stage == 0
    assert program().fits


def test_matmuls_are_the_formula_but_for_the_first_layer() -> None:
    found = {one.layer: one for one in program().matmuls}
    first = found.pop("self_attention.linear_qkv")  # nothing below it is trained, so it has no gradient for its input
    assert (first.forward + first.backward) / first.planned == 0.75
    assert {layer: one.forward + one.backward for layer, one in found.items()} == pytest.approx(
        {layer: one.planned for layer, one in found.items()}
    )


def test_a_report_names_what_it_found_and_what_stands_for_the_kernels() -> None:
    text = variants.text({"as planned": program()}, {})
    for words in ("stage 0", "mlp.linear_fc1", "pipeline", "Transformer Engine 2.20.0.dev0", "4 of 4 micro-batches"):
        assert words in text


def test_variants_are_ranked_by_memory() -> None:
    programs = {"large": large(), "planned": program()}
    assert variants.ranked(programs) == ["planned", "large"]
    table = variants.text(programs, {"wrong": RunError("wrong: it aborted")})
    assert "wrong: it aborted" in table
    assert [row[1] for row in variants.grid(programs).rows] == ["yes", "NO"]
    refused = variants.too_large({"large": large()})
    assert refused is not None
    assert "recompute_granularity=full" in refused.next_command
    assert variants.too_large(programs) is None


def test_all_of_it_is_json_and_a_page_too() -> None:
    found = msgspec.to_builtins(variants.as_data({"planned": program()}, {}))
    assert msgspec.to_builtins(msgspec.convert(found, variants.TracedVariants)) == found
    (one,) = found["variants"]
    assert {"name", "benchmark", "compiled", "fits", "memory", "matmuls", "collectives"} <= one.keys()
    html = page(*compiled_parts({"planned": program()}, {}))
    for grid in traced_report.grids(program()):
        assert grid.heading in html
