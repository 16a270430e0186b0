"""Variants of a benchmark: how they are asked for, ranked and shown."""

from dataclasses import replace

import msgspec
import pytest

from benchmarks.compilation import variants
from benchmarks.compilation.program import Program
from benchmarks.errors import RequestError, RunError
from tests.benchmarks.compilation.samples import REQUEST, flagship, too_large


@pytest.fixture
def program() -> Program:
    return flagship()


def settings(text: str | None, **typed: str) -> dict[str, dict[str, str]]:
    request = msgspec.structs.replace(REQUEST, settings=typed)
    return {name: dict(found.settings) for name, found in variants.variant_requests([request], text).items()}


def test_every_combination_of_lists_and_flags_has_a_name() -> None:
    assert settings(None, micro_batch_size="1") == {"as planned": {"micro_batch_size": "1"}}
    found = settings("off: --xla_a=1 --xla_b=; on: --xla_a=0", remat_policy="full,minimal", micro_batch_size="1")
    assert list(found) == [
        "remat_policy=full",
        "remat_policy=full, off",
        "remat_policy=full, on",
        "remat_policy=minimal",
        "remat_policy=minimal, off",
        "remat_policy=minimal, on",
    ]
    assert found["remat_policy=minimal, off"] == {
        "remat_policy": "minimal", "micro_batch_size": "1", "xla_a": "1", "xla_b": "",
    }  # fmt: skip


def test_flags_whose_values_have_commas_are_no_lists() -> None:
    assert list(settings(None, xla_gpu_enable_command_buffer="FUSION,CUBLAS", lora_targets="q,k")) == ["as planned"]


@pytest.mark.parametrize(
    "text", ["", "off", "off:", ": --xla_a=1", "off: --xla_a", "off: remat_policy=full", "a: --xla_a=1; a: --xla_a=2"]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(RequestError) as refused:
        settings(text)
    assert refused.value.next_command == variants.EXAMPLE


@pytest.mark.parametrize("value", ["full,", "full,full"])
def test_a_list_with_an_empty_or_a_repeated_value_is_refused(value: str) -> None:
    with pytest.raises(RequestError):
        settings(None, remat_policy=value)


def synchronous(program: Program) -> Program:
    """Return the program with its collectives never overlapped."""
    schedule = program.compiled.schedule
    computations = {
        name: [
            msgspec.structs.replace(one, event="run") if one.what == "collective" and one.event == "start" else one
            for one in operations
        ]
        for name, operations in schedule.computations.items()
    }
    alone = msgspec.structs.replace(schedule, computations=computations)
    return replace(
        program, compiled=msgspec.structs.replace(program.compiled, schedule=alone, program_sha256="another")
    )


def test_what_fits_comes_first_and_then_what_hides_most(program: Program) -> None:
    programs = {"large": too_large(program), "synchronous": synchronous(program), "planned": program}
    assert variants.ranked(programs) == ["planned", "synchronous", "large"]
    assert programs["planned"].exposed_bytes == pytest.approx(3.94e9, rel=1e-2)
    assert programs["synchronous"].exposed_bytes == pytest.approx(406.36e9, rel=1e-4)


def test_an_unmatched_expectation_is_reported_and_each_outcome_has_an_exit_code(program: Program) -> None:
    large = too_large(program)
    assert variants.too_large({"large": large, "planned": program}) is None
    alone = variants.too_large({"large": large})
    assert alone is not None
    assert alone.where.startswith("DOES NOT FIT: 90.00 GB of 79.85 GB")
    assert "kept activations: 34.90 GB" in alone.why
    assert variants.exit_code({"large": large}, {}) == 2
    assert variants.exit_code({"large": large, "planned": program}, {}) == 0
    assert variants.exit_code({"planned": program}, {"wrong": RequestError("wrong")}) == 2
    assert variants.exit_code({"planned": program}, {"wrong": RunError("wrong")}) == 1


def test_the_table_says_what_each_variant_changes_and_what_failed(program: Program) -> None:
    programs = {"planned": program, "alone": synchronous(program), "same": program, "large": too_large(program)}
    text = variants.text(programs, {"wrong": RunError("wrong: it aborted")})
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "17, 12 hidden" in rows["planned"]
    assert "0 -> 17 synchronous" in rows["alone"]
    assert "the same program" in rows["same"]
    assert rows["large"].split()[1] == "NO"
    assert "wrong: it aborted" in text
    assert variants.UNKNOWN in text


def test_all_of_it_is_json_too(program: Program) -> None:
    found = msgspec.to_builtins(variants.as_data({"planned": program}, {"wrong": RunError("wrong: it aborted")}))
    assert msgspec.to_builtins(msgspec.convert(found, variants.Variants)) == found
    (one,) = found["variants"]
    assert {"name", "fits", "memory", "overlap", "sent_per_step", "shares", "compiled"} <= one.keys()
    assert found["failed"] == {"wrong": "wrong: it aborted"}
