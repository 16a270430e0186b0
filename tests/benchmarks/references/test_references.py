"""Published rows: read whole, and refused by their line. test_recomputed_rows.py recomputes them."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.published_rows import Reference, read_omitted, read_references

CONFIGS = Configs()
ROWS = read_references(CONFIGS.root)
DTYPES = {"FP8-CS": "fp8", "FP8-MX": "mxfp8"}  # the precisions whose names are not those of Stepmark
IDS = [f"{number}-{row.name}" for number, row in enumerate(ROWS)]


def test_all_rows_are_there_with_their_source() -> None:
    assert len(ROWS) == 359
    bridge = [row for row in ROWS if row.source.endswith("Megatron-Bridge")]
    omitted = read_omitted(CONFIGS.root)
    in_parentheses = 13  # a second figure in the same line
    assert len(bridge) - in_parentheses + sum(len(one.lines) for one in omitted) == 278
    assert all(one.reason and one.tag and one.file for one in omitted)
    assert all(row.source and row.tag and row.file and row.date for row in ROWS)
    tables = Counter((row.model, row.hardware, row.tag) for row in ROWS if row.task == "pretrain")
    assert tables["llama31_8b", "h100", "v24.11.1"] == tables["llama31_8b", "h100", "v25.02"] == 10
    assert tables["llama31_405b", "h100", "v25.02"] == tables["llama31_405b", "h100", "v25.04"] == 6
    assert {row.hardware for row in ROWS} == {"h100", "b200", "b300", "gb200", "gb300"}


def test_no_row_is_there_twice() -> None:
    figures = [msgspec.structs.replace(row, tag="", file="", line=1, date="", where="") for row in ROWS]
    assert len(set(figures)) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_every_row_is_of_a_model_and_a_device_that_are_known(row: Reference) -> None:
    assert CONFIGS.model(row.model).name == row.model
    assert row.dtype in CONFIGS.hardware(row.hardware).peaks
    assert row.parallelism.devices == row.gpus
    assert row.seconds_per_step or row.tokens_per_second_per_gpu
    assert row.dtype == DTYPES.get(row.precision, row.precision.lower())
    model, share = row.trained_model(CONFIGS), row.parallelism
    assert bool(row.routing) == (model.experts is not None)
    assert model.experts is None or model.experts.count % row.expert == 0
    assert share.devices // share.pipeline % row.expert == 0
    replicas = row.data * row.fsdp
    assert row.global_batch_size % (replicas * row.micro_batch_size) == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        *(("17.20", value, "at `$.seconds_per_step`") for value in ("fast", "nan", "inf", "0", "0.00")),
        ("17.20", "fast", "matching regex"),
        ("120022", "-3", "at `$.tokens_per_second`"),
        ("recipe,2.17e16,", "stated,much,", "at `$.stated_flops_per_sequence`"),
        ("recipe,", "recipee,", "flops is 'recipee', but must be one of stated, recipe, causal"),
        ("8192,252,", "8192,0,", "Expected `int` >= 1"),
        (".md,58,", ".md,0,", "Expected `int` >= 1"),
        (",2026-11-23", "", "Expected `str`, got `null`"),
        ("8192,252", "8192,many", "Expected `int`"),
    ],
)
def test_a_row_that_cannot_be_is_named_by_its_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    header, line, *_ = (CONFIGS.root / "references/published.csv").read_text().splitlines()
    assert old in line
    (tmp_path / "references").mkdir()
    (tmp_path / "references/own.csv").write_text(f"{header}\n{line.replace(old, new)}\n")
    with pytest.raises(RequestError) as caught:
        read_references(tmp_path)
    assert words in caught.value.what
    assert caught.value.where.endswith("own.csv:2")


def test_the_step_time_follows_from_tokens_a_gpu() -> None:
    row = msgspec.structs.replace(ROWS[0], seconds_per_step="", tokens_per_second_per_gpu="208")
    assert row.seconds == pytest.approx(252 * 8192 / 576 / 208)
