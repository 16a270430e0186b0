"""Published rows: read whole, recomputed from their step times, and the cells that do not follow named, no other."""

from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.references.reference_table import check, table_text
from benchmarks.references.references import Reference, cells, mfu_percent, read_references, rounded_by

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


@pytest.mark.parametrize("row", [row for row in ROWS if (row.name, "mfu_percent") not in SLIPS])
def test_a_consistent_row_has_its_mfu_within_a_tenth_of_a_point(row: Reference) -> None:
    computed = mfu_percent(row, CONFIGS.model(row.model), CONFIGS.hardware(row.hardware))
    assert computed == pytest.approx(float(row.mfu_percent), abs=0.1)


@pytest.mark.parametrize(("printed", "digit"), [("14.72", 0.01), ("71235", 1.0), ("10", 1.0), ("9.860", 0.001)])
def test_the_last_printed_digit_says_how_a_figure_was_rounded(printed: str, digit: float) -> None:
    assert rounded_by(printed) == pytest.approx(digit)


def test_a_step_time_that_is_off_by_a_hundredth_is_seen() -> None:
    """The bf16 row of 64 GPUs: 6.999 s, 74,908.99 tokens/s."""
    row = msgspec.structs.replace(ROWS[0], seconds_per_step="7.009")
    model, hardware = CONFIGS.model(row.model), CONFIGS.hardware(row.hardware)
    assert [cell.figure for cell in cells(row, model, hardware) if not cell.follows] == [
        "tokens_per_second",
        "days_per_trillion_tokens",
    ]


def write(folder: Path, line: str) -> Path:
    header = (CONFIGS.root / "references/published.csv").read_text().splitlines()[0]
    (folder / "references").mkdir()
    (folder / "references/own.csv").write_text(f"{header}\n{line}\n")
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("64,1,2,last", "32,1,2,last"), "the layout is for 32 devices, the row for 64"),
        (("6.999", "fast"), "seconds_per_step is 'fast', which is no number above 0"),
        (("6.999", "nan"), "seconds_per_step is 'nan', which is no number above 0"),
        (("6.999", "inf"), "seconds_per_step is 'inf'"),
        (("6.999", "0"), "seconds_per_step is '0', which is no number above 0"),
        (("6.999", "-1"), "seconds_per_step is '-1'"),
        (("6.999", ""), "seconds_per_step is ''"),
        (("52.59", "abc"), "mfu_percent is 'abc', which is no number above 0"),
        (("74908.99", "-3"), "tokens_per_second is '-3'"),
        (("154.51", "long"), "days_per_trillion_tokens is 'long'"),
        (("recipe,,", "stated,,"), "flops is stated, and stated_flops_per_sequence is empty"),
        (("recipe,,", "stated,much,"), "stated_flops_per_sequence is 'much'"),
        (("recipe,,", "recipee,,"), "flops is 'recipee', which is none of stated, recipe, causal"),
        (("4096,128,1,1", "4096,0,1,1"), "Expected `int` >= 1"),
        (("2026-11-22", "2026-11-22,more"), "the row has more cells than the first line has names"),
        ((",2026-11-22", ""), "Expected `str`, got `null`"),
        (("4096,128", "4096,many"), "Expected `int`"),
    ],
)
def test_a_row_that_cannot_be_is_named_by_its_line(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    line = (CONFIGS.root / "references/published.csv").read_text().splitlines()[1]
    assert change[0] in line
    with pytest.raises(RequestError) as caught:
        read_references(write(tmp_path, line.replace(*change)))
    assert words in caught.value.what
    assert caught.value.where.endswith("own.csv:2")


def test_a_row_may_have_its_step_time_alone(tmp_path: Path) -> None:
    line = (CONFIGS.root / "references/published.csv").read_text().splitlines()[1]
    (row,) = read_references(write(tmp_path, line.replace("74908.99,52.59,154.51", ",,")))
    model, hardware = CONFIGS.model(row.model), CONFIGS.hardware(row.hardware)
    assert list(cells(row, model, hardware)) == []
    assert "6.999   -         -      -" in table_text(check([row], CONFIGS.model, CONFIGS.hardware))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((",bf16,", ",int8,"), "the row has an MFU, and h100 has no int8 peak that it could be of"),
        ((",bf16,", ",fp9,"), "h100 has no fp9 peak"),
        ((",h100,", ",cpu,"), "cpu has no bf16 peak"),
    ],
)
def test_an_mfu_without_a_peak_is_named_by_its_line(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    line = (CONFIGS.root / "references/published.csv").read_text().splitlines()[1]
    rows = read_references(write(tmp_path, line.replace(*change)))
    with pytest.raises(RequestError) as caught:
        check(rows, CONFIGS.model, CONFIGS.hardware)
    assert words in caught.value.what
    assert caught.value.where.endswith("own.csv:2")
    without = msgspec.structs.replace(rows[0], mfu_percent="")
    assert len(check([without], CONFIGS.model, CONFIGS.hardware)[0].cells) == 2


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, "")
    (folder / "references/own.csv").write_bytes(b"model\n\xff\xfe\n")
    with pytest.raises(RequestError) as caught:
        read_references(folder)
    assert caught.value.where.endswith("own.csv")


@pytest.mark.parametrize(
    ("of", "seconds", "tokens", "mfu", "days"),
    [
        ("llama2_70b pretrain bf16 64 x h100", "7.908", "66298.43", "46.54", "174.57"),
        ("llama31_70b pretrain fp8 64 x h100", "11.31", "92712", "35.21", "124.84"),
    ],
)
def test_a_worked_example_of_another_time_than_its_table_follows_from_itself(
    of: str, seconds: str, tokens: str, mfu: str, days: str
) -> None:
    """Two recipes work through a time that is not in their table. It is no row, and their formulas hold for it."""
    row = next(row for row in ROWS if row.name == of and "its table" in row.source)
    assert row.seconds_per_step != seconds
    example = msgspec.structs.replace(
        row, seconds_per_step=seconds, tokens_per_second=tokens, mfu_percent=mfu, days_per_trillion_tokens=days
    )
    found = list(cells(example, CONFIGS.model(row.model), CONFIGS.hardware(row.hardware)))
    assert [cell.follows for cell in found] == [True] * 3


def test_no_source_has_two_times_for_one_configuration() -> None:
    named = [(row.source, row.name, row.parallelism) for row in ROWS]
    assert len(set(named)) == len(named)


def test_every_row_names_the_framework_of_its_source() -> None:
    """How that is known: docs/figures.md."""
    assert {(row.backend, row.engine) for row in ROWS} == {("jax", "maxtext"), ("nemo", "nemo")}


def test_the_table_shows_each_source_and_marks_what_does_not_follow() -> None:
    text = table_text(check(ROWS, CONFIGS.model, CONFIGS.hardware))
    assert "75 rows, 175 cells recomputed from the step times; 5 do not follow:" in text
    assert "53.38 (! 53.24)" in text
    assert text.count("(! ") == 5
    for source in {row.source for row in ROWS}:
        assert source in text
