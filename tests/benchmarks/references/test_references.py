"""Published rows: read whole, recomputed from their step times, and the cells that do not follow named, no other."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.published_rows import Reference, read_references
from benchmarks.references.reference_table import cells, check, table_text

CONFIGS = Configs()
ROWS = read_references(CONFIGS.root)
IDS = [f"{number}-{row.name}" for number, row in enumerate(ROWS)]

# Slips of the sources: (tag, row, figure) -> what stands there and what its own step time gives.
SLIPS = {
    ("v24.11.1", "llama31_70b pretrain bf16 2048 x h100", "tokens_per_second"): (2248957, 2239948.7),
    ("v24.11.1", "llama31_70b pretrain bf16 2048 x h100", "mfu_percent"): (53.38, 53.19),
    ("v24.11.1", "llama31_70b pretrain bf16 2048 x h100", "days_per_trillion_tokens"): (5.15, 5.167),
    ("v25.04", "llama3_70b lora bf16 32 x h100", "mfu_percent"): (47.3, 46.92),
    ("v25.04", "llama3_70b lora bf16 32 x h100", "days_per_trillion_tokens"): (215, 215.7),
    ("v25.04", "llama3_8b lora bf16 16 x h100", "tokens_per_second"): (284939, 283706),
    ("v25.04", "llama3_8b lora bf16 16 x h100", "days_per_trillion_tokens"): (40.5, 40.80),
    ("v25.04", "llama3_8b lora fp8 32 x h100", "tokens_per_second"): (771011, 759838),
    ("v25.10", "llama31_405b pretrain FP8-CS 128 x gb200", "tflops_per_gpu"): (1636.8, 1801.1),
    ("v25.10", "llama3_70b lora bf16 8 x gb200", "days_per_trillion_tokens"): (373.6, 373.43),
    ("v0.3.0", "llama31_405b pretrain fp8 256 x gb200", "tflops_per_gpu"): (2004, 2001.5),
    ("v0.4.0", "llama3_70b pretrain MXFP8 64 x gb300", "tflops_per_gpu"): (2157, 2155.4),
    ("v0.4.0", "llama3_70b pretrain fp8 64 x gb300", "tflops_per_gpu"): (2353, 2355.3),
    ("v0.4.0", "llama3_70b pretrain fp8 64 x gb200", "tflops_per_gpu"): (1956, 1957.3),
    ("v0.4.2", "llama3_70b pretrain MXFP8 64 x gb300", "tflops_per_gpu"): (2131, 2130.2),
    ("v0.4.2", "llama3_70b pretrain MXFP8 64 x gb200", "tflops_per_gpu"): (1721, 1719.6),
    # Megatron-Bridge counts the FLOPs of LoRA by the lengths of the sequences that its data set packs.
    ("v0.5.0", "llama3_70b lora fp8 8 x gb300", "tflops_per_gpu"): (2086, 2160.1),
    ("v0.5.0", "llama3_70b lora MXFP8 8 x gb300", "tflops_per_gpu"): (2072, 2150.3),
    ("v0.5.0", "llama3_70b lora fp8 8 x gb200", "tflops_per_gpu"): (1731, 1791.9),
    ("v0.5.0", "llama3_70b lora MXFP8 8 x gb200", "tflops_per_gpu"): (1663, 1720.3),
    ("v0.5.0", "llama3_70b lora fp8 8 x h100", "tflops_per_gpu"): (735, 763.2),
}
# FLOPs of a sequence that sources compute with and their models do not have: 16 query groups for 8; a sum of rounded
# parts with more digits than they had.
FLOPS_SLIPS = {("llama31_405b", 2.17e16): 2.1507e16, ("llama3_70b", 5.8067e14): 5.8035e14}


def test_all_rows_are_there_with_their_source() -> None:
    assert len(ROWS) == 206
    assert all(row.source and row.tag and row.file and row.date for row in ROWS)
    tables = Counter((row.model, row.hardware, row.tag) for row in ROWS if row.task == "pretrain")
    assert tables["llama31_8b", "h100", "v24.11.1"] == tables["llama31_8b", "h100", "v25.02"] == 10
    assert tables["llama31_405b", "h100", "v25.02"] == tables["llama31_405b", "h100", "v25.04"] == 6
    assert {row.hardware for row in ROWS} == {"h100", "b200", "gb200", "gb300"}


def test_no_row_is_there_twice() -> None:
    figures = [msgspec.structs.replace(row, tag="", file="", line=1, date="", where="") for row in ROWS]
    assert len(set(figures)) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_every_row_is_of_a_model_and_a_device_that_are_known(row: Reference) -> None:
    assert CONFIGS.model(row.model).name == row.model
    assert row.dtype in CONFIGS.hardware(row.hardware).peaks
    assert row.parallelism.devices == row.gpus
    replicas = row.data * row.fsdp
    assert row.global_batch_size % (replicas * row.micro_batch_size) == 0


def test_the_cells_that_do_not_follow_are_named_and_no_other() -> None:
    found, flops = {}, {}
    for row in ROWS:
        for cell in cells(row, CONFIGS.model(row.model), CONFIGS.hardware(row.hardware)):
            if cell.follows:
                continue
            if cell.figure == "stated_flops_per_sequence":
                flops[row.model, cell.printed] = cell.computed
            else:
                found[row.tag, row.name, cell.figure] = (cell.printed, cell.computed)
    assert flops == pytest.approx(FLOPS_SLIPS, rel=1e-4)
    assert found.keys() == SLIPS.keys()
    for key, (printed, computed) in SLIPS.items():
        assert found[key][0] == printed
        assert found[key][1] == pytest.approx(computed, rel=1e-3)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("4,1,last", "2,1,last", "the layout is for 288 devices, the row for 576"),
        *(("17.20", value, "at `$.seconds_per_step`") for value in ("fast", "nan", "inf", "0", "0.00")),
        ("17.20", "fast", "matching regex"),
        ("bf16,BF16", "bf16,FP8", "dtype is bf16, and precision is FP8"),
        ("17.20", "", "it has neither seconds_per_step nor tokens_per_second_per_gpu"),
        ("120022", "-3", "at `$.tokens_per_second`"),
        ("recipe,2.17e16,", "stated,,", "flops is stated, and stated_flops_per_sequence is empty"),
        ("recipe,2.17e16,", "stated,much,", "at `$.stated_flops_per_sequence`"),
        ("recipe,", "recipee,", "flops is 'recipee', which is none of stated, recipe, causal"),
        ("8192,252,", "8192,0,", "Expected `int` >= 1"),
        (".md,58,", ".md,0,", "Expected `int` >= 1"),
        ("2026-11-23", "2026-11-23,more", "it has more cells than the first line has names"),
        (",2026-11-23", "", "Expected `str`, got `null`"),
        ("8192,252", "8192,many", "Expected `int`"),
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
    assert len(check([row], CONFIGS.model, CONFIGS.hardware)[0].cells) == 3


def test_the_step_time_follows_from_tokens_a_gpu_as_they_were_rounded() -> None:
    row = msgspec.structs.replace(ROWS[0], seconds_per_step="", tokens_per_second_per_gpu="208")
    assert row.seconds == pytest.approx(252 * 8192 / 576 / 208)
    quick, slow = row.seconds_range
    assert (quick / row.seconds, slow / row.seconds) == pytest.approx((208 / 208.5, 208 / 207.5))
    coarse = msgspec.structs.replace(row, resolution="16")
    assert coarse.seconds_range[1] / coarse.seconds == pytest.approx(208 / 200)


def test_the_table_shows_each_page_and_marks_what_does_not_follow() -> None:
    text = table_text(check(ROWS, CONFIGS.model, CONFIGS.hardware))
    assert "206 rows, 579 cells recomputed from the step times; 49 do not follow" in text
    assert "53.38 (! 53.19)" in text
    assert text.count("(! ") == 49
    for page in {row.page for row in ROWS}:
        assert page in text
    assert [line.split() for line in text.splitlines()[-3:]] == [
        ["NVIDIA/dgxc-benchmarking", "129"],
        ["NVIDIA-NeMo/Megatron-Bridge", "76"],
        ["NVIDIA/JAX-Toolbox", "1"],
    ]
