"""Published rows: read whole, recomputed from their step times, and the cells that do not follow named, no other."""

from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.references.reference_table import check, table_text
from benchmarks.references.references import Reference, cells, read_references

CONFIGS = Configs()
ROWS = read_references(CONFIGS.root)
IDS = [f"{number}-{row.name}" for number, row in enumerate(ROWS)]

# Slips of the sources: (row, figure) -> what stands there and what its own step time gives.
SLIPS = {
    ("llama31_70b pretrain bf16 2048 x h100", "tokens_per_second"): (2248957, 2239948.7),
    ("llama31_70b pretrain bf16 2048 x h100", "mfu_percent"): (53.38, 53.24),
    ("llama31_70b pretrain bf16 2048 x h100", "days_per_trillion_tokens"): (5.15, 5.167),
    ("llama3_70b lora bf16 32 x h100", "mfu_percent"): (47.3, 46.92),
    ("llama3_70b lora bf16 8 x gb200", "days_per_trillion_tokens"): (373.6, 373.43),
}


def test_all_rows_are_there_with_their_source() -> None:
    assert len(ROWS) == 75
    assert all(row.source and row.date for row in ROWS)
    scales = {(row.model, row.dtype, row.gpus) for row in ROWS}
    assert {
        ("llama2_70b", dtype, 8 * nodes) for dtype in ("bf16", "fp8") for nodes in (8, 16, 32, 64, 128, 256)
    } <= scales


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_every_row_is_of_a_model_and_a_device_that_are_known(row: Reference) -> None:
    assert CONFIGS.model(row.model).name == row.model
    assert row.dtype in CONFIGS.hardware(row.hardware).peaks
    assert row.parallelism.devices == row.gpus
    replicas = row.data * row.fsdp
    assert row.global_batch_size % (replicas * row.micro_batch_size) == 0


def test_the_cells_that_do_not_follow_are_named_and_no_other() -> None:
    found = {}
    for row in ROWS:
        for cell in cells(row, CONFIGS.model(row.model), CONFIGS.hardware(row.hardware)):
            if not cell.follows:
                found[row.name, cell.figure] = (cell.printed, cell.computed)
    assert found.keys() == SLIPS.keys()
    for key, (printed, computed) in SLIPS.items():
        assert found[key][0] == printed
        assert found[key][1] == pytest.approx(computed, rel=1e-3)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("64,1,2,last", "32,1,2,last", "the layout is for 32 devices, the row for 64"),
        *(("6.999", value, "at `$.seconds_per_step`") for value in ("fast", "nan", "inf", "0", "0.00", "")),
        ("74908.99", "-3", "at `$.tokens_per_second`"),
        ("recipe,,", "stated,,", "flops is stated, and stated_flops_per_sequence is empty"),
        ("recipe,,", "stated,much,", "at `$.stated_flops_per_sequence`"),
        ("recipe,,", "recipee,,", "flops is 'recipee', which is none of stated, recipe, causal"),
        ("4096,128,1,1", "4096,0,1,1", "Expected `int` >= 1"),
        ("2026-11-22", "2026-11-22,more", "it has more cells than the first line has names"),
        (",2026-11-22", "", "Expected `str`, got `null`"),
        ("4096,128", "4096,many", "Expected `int`"),
        # of an MFU without a peak
        (",bf16,", ",int8,", "the row has an MFU, and h100 has no int8 peak that it could be of"),
        (",bf16,", ",fp9,", "h100 has no fp9 peak"),
        (",h100,", ",cpu,", "cpu has no bf16 peak"),
    ],
)
def test_a_row_that_cannot_be_is_named_by_its_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    header, line, *_ = (CONFIGS.root / "references/published.csv").read_text().splitlines()
    assert old in line
    (tmp_path / "references").mkdir()
    (tmp_path / "references/own.csv").write_text(f"{header}\n{line.replace(old, new)}\n")
    with pytest.raises(RequestError) as caught:
        check(read_references(tmp_path), CONFIGS.model, CONFIGS.hardware)
    assert words in caught.value.what
    assert caught.value.where.endswith("own.csv:2")


def test_a_row_without_an_mfu_needs_no_peak() -> None:
    row = msgspec.structs.replace(ROWS[0], dtype="int8", mfu_percent="")
    assert len(check([row], CONFIGS.model, CONFIGS.hardware)[0].cells) == 2


def test_the_table_shows_each_source_and_marks_what_does_not_follow() -> None:
    text = table_text(check(ROWS, CONFIGS.model, CONFIGS.hardware))
    assert "75 rows, 175 cells recomputed from the step times; 5 do not follow:" in text
    assert "53.38 (! 53.24)" in text
    assert text.count("(! ") == 5
    for source in {row.source for row in ROWS}:
        assert source in text
