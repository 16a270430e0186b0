"""A compiled program against the plan and the formulas: the flagship as XLA compiled it for 64 H100s."""

from dataclasses import replace

import msgspec
import pytest

from benchmarks.compilation import compiled_report
from benchmarks.compilation.compiled import Operation, PeakBuffer, kernels, overlap
from benchmarks.compilation.program import kind_of, place_of
from benchmarks.model.capacity import memory_by_part
from benchmarks.model.flops import parameter_count
from tests.benchmarks.compilation import formulas
from tests.benchmarks.compilation.samples import flagship, schedule_of, too_large


def test_each_part_of_the_plan_is_that_of_the_buffers() -> None:
    program = flagship()
    parts = memory_by_part(program.benchmark, program.storage)
    found = program.memory
    peak = program.compiled.peak_bytes
    assert sum(kind.held_bytes for kind in found) == pytest.approx(peak)
    assert sum(kind.planned_bytes for kind in found) == pytest.approx(sum(parts.values()))
    for kind in found:
        assert kind.planned_bytes == pytest.approx(kind.held_bytes, abs=0.01 * peak), kind.name


def test_the_largest_are_the_activations_that_are_kept() -> None:
    largest = flagship().compiled.held[:5]
    assert [kind_of(one, flagship().benchmark) for one in largest] == ["kept activations"] * 5
    assert sum(one.bytes for one in largest) == pytest.approx(34.9e9, rel=1e-3)


def test_the_peak_includes_the_memory_of_ragged_all_to_all() -> None:
    whole = flagship()
    exchange = schedule_of(Operation(name="exchange", what="collective", kind="ragged-all-to-all"))
    for schedule, peak in ((schedule_of(), 60e9), (exchange, 63.88e9)):
        compiled = msgspec.structs.replace(whole.compiled, schedule=schedule, peak_bytes=60e9)
        assert replace(whole, compiled=compiled).peak_bytes == pytest.approx(peak, rel=1e-3)


def held(op: str, layer: str = "", part: str = "elsewhere") -> PeakBuffer:
    return PeakBuffer(
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
def test_a_buffer_says_which_layer_and_operation_it_is_of(buffer: PeakBuffer, words: str) -> None:
    assert place_of(buffer) == words


# --- the formulas -----------------------------------------------------------------------------------


def test_the_program_has_the_matmuls_of_the_formula_and_no_others() -> None:
    benchmark, storage, compiled = flagship().benchmark, flagship().storage, flagship().compiled
    found = {(one.what, one.kind): one.flops for one in kernels(compiled.schedule)}
    assert found["matmul", "bf16"] == pytest.approx(formulas.matmul_flops(benchmark, storage), rel=1e-9)
    assert found["attention", "backward"] == pytest.approx(formulas.attention_backward_flops(benchmark), rel=1e-9)
    assert compiled.parameters == parameter_count(benchmark.model) == 68_976_648_192


def test_the_program_sends_what_the_formula_says_but_for_the_embedding_and_the_head() -> None:
    """The table is gathered once, and so is the head: of three times P two bytes each, 1.03 GB less."""
    benchmark, compiled = flagship().benchmark, flagship().compiled
    sent = sum(one.sent_bytes for one in overlap(compiled.schedule))
    once = 2 * 2 * benchmark.model.vocabulary_size * benchmark.model.hidden_size * 63 / 64
    assert sent == pytest.approx(formulas.sent_bytes(benchmark) - once, rel=1e-6)


# --- the report -------------------------------------------------------------------------------------


def test_the_report_has_each_part() -> None:
    text = compiled_report.text(flagship())
    for words in ("peak of a device", "63.75 GB of 79.85 GB", "12 of 17", "4.0017e+15", "exposed communication"):
        assert words in text
    assert "DOES NOT FIT: 90.00 GB of 79.85 GB" in compiled_report.text(too_large(flagship()))


def test_without_the_rates_of_a_device_only_the_times_are_missing() -> None:
    program = flagship()
    hardware = msgspec.structs.replace(program.benchmark.hardware, achievable={})
    unknown = replace(program, benchmark=msgspec.structs.replace(program.benchmark, hardware=hardware))
    found = compiled_report.as_data("as planned", unknown)
    assert found.shares == {}
    assert "h100.yml lacks achievable" in found.notes[0]
    text = compiled_report.text(unknown)
    assert "parts of a step" not in text
    assert "peak of a device" in text
