"""Published rows recomputed in exact arithmetic, with the papers' dimensions: which cells do not follow."""

import csv
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from benchmarks.configs import Configs
from benchmarks.model.published_rows import read_references

CONFIGS = Configs()


class Range(NamedTuple):
    """The values that a printed number may have had before it was rounded, and what follows from them."""

    low: Fraction
    high: Fraction

    def meets(self, other: "Range") -> bool:
        return self.low <= other.high and other.low <= self.high

    def times(self, other: Fraction) -> "Range":
        return Range(self.low * other, self.high * other)

    def over(self, other: "Range") -> "Range":
        return Range(self.low / other.high, self.high / other.low)


def exactly(number: Fraction) -> Range:
    return Range(number, number)


def printed(text: str, resolution: str = "") -> Range:
    """Return the range of a value rounded to its last digit, or to `resolution`."""
    half = (Fraction(resolution) if resolution else Fraction(10) ** int(Decimal(text).as_tuple().exponent)) / 2
    return Range(Fraction(text) - half, Fraction(text) + half)


class Dimensions(NamedTuple):
    """Dimensions from the papers: Touvron et al. 2023, table 1; Llama Team 2024, table 3."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    groups: int
    vocabulary: int


MODELS = {
    "llama2_7b": Dimensions(32, 4096, 11008, 32, 32, 32000),
    "llama2_70b": Dimensions(80, 8192, 28672, 64, 8, 32000),
    "llama3_70b": Dimensions(80, 8192, 28672, 64, 8, 128256),
    "llama31_8b": Dimensions(32, 4096, 14336, 32, 8, 128256),
    "llama31_405b": Dimensions(126, 16384, 53248, 128, 8, 128256),
}
SAME = {"llama31_70b": "llama3_70b", "llama33_70b": "llama3_70b", "llama3_8b": "llama31_8b"}


def model_flops(row: Mapping[str, str]) -> Fraction:
    """Return the FLOPs of a sequence: six per weight and token, and the attention core, whole or halved."""
    if row["flops"] == "stated":
        return Fraction(row["stated_flops_per_sequence"])
    m, length = MODELS[SAME.get(row["model"], row["model"])], int(row["sequence_length"])
    projections = 2 * m.hidden**2 * (1 + Fraction(m.groups, m.heads))
    matmuls = 6 * (m.layers * (projections + 3 * m.hidden * m.ffn) + m.vocabulary * m.hidden)
    core = 12 * m.layers * m.hidden * length
    causal = matmuls + Fraction(core, 2)
    return {"recipe": matmuls + core, "causal": causal, "lora": causal * 2 / 3}[row["flops"]] * length


def judged(row: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Each printed figure of a row, and whether it can follow from the others as they were before rounding."""
    tokens, gpus = Fraction(int(row["sequence_length"]) * int(row["global_batch_size"])), Fraction(row["gpus"])
    made: dict[str, Range] = {}
    if row["seconds_per_step"]:
        seconds = printed(row["seconds_per_step"])
        made["tokens_per_second_per_gpu"] = exactly(tokens / gpus).over(seconds)
    else:
        seconds = exactly(tokens / gpus).over(printed(row["tokens_per_second_per_gpu"], row["resolution"]))
    made["tokens_per_second"] = exactly(tokens).over(seconds)
    made["days_per_trillion_tokens"] = seconds.times(Fraction(10**12, 86_400) / tokens)
    if row["flops"] != "stated" and not row["routing"]:
        made["stated_flops_per_sequence"] = exactly(model_flops(row))
    share = Fraction(int(row["global_batch_size"]), int(row["gpus"]) * 10**12)
    if not row["routing"]:  # see test_printed_conventions.py
        made["tflops_per_gpu"] = exactly(model_flops(row) * share).over(seconds)
    if row["mfu_percent"]:
        stated = row["stated_flops_per_sequence"]
        used = printed(stated) if stated else exactly(model_flops(row))
        hardware = CONFIGS.hardware(row["hardware"])
        peak = printed(f"{(hardware.published or hardware.peaks)[row['dtype']].tflops:g}")  # as its source rounds
        made["mfu_percent"] = used.times(100 * share).over(seconds).over(peak)
    yield from ((figure, printed(row[figure]).meets(found)) for figure, found in made.items() if row[figure])


# Slips of the sources: the tag, the row and the figure that its own step time does not give.
SLIPS = {
    ("v24.11.1", "llama31_70b pretrain bf16 2048 x h100", "tokens_per_second"),
    ("v24.11.1", "llama31_70b pretrain bf16 2048 x h100", "mfu_percent"),
    ("v24.11.1", "llama31_70b pretrain bf16 2048 x h100", "days_per_trillion_tokens"),
    ("v25.04", "llama3_70b lora bf16 32 x h100", "mfu_percent"),
    ("v25.04", "llama3_70b lora bf16 32 x h100", "days_per_trillion_tokens"),
    ("v25.04", "llama3_8b lora bf16 16 x h100", "tokens_per_second"),
    ("v25.04", "llama3_8b lora bf16 16 x h100", "days_per_trillion_tokens"),
    ("v25.04", "llama3_8b lora fp8 32 x h100", "tokens_per_second"),
    ("v25.10", "llama31_405b pretrain FP8-CS 128 x gb200", "tflops_per_gpu"),
    ("v25.10", "llama3_70b lora bf16 8 x gb200", "days_per_trillion_tokens"),
    ("v0.3.0", "llama31_405b pretrain fp8 256 x gb200", "tflops_per_gpu"),
    ("v0.4.0", "llama3_70b pretrain mxfp8 64 x gb300", "tflops_per_gpu"),
    ("v0.4.0", "llama3_70b pretrain fp8 64 x gb300", "tflops_per_gpu"),
    ("v0.4.0", "llama3_70b pretrain fp8 64 x gb200", "tflops_per_gpu"),
    ("v0.4.2", "llama3_70b pretrain mxfp8 64 x gb300", "tflops_per_gpu"),
    ("v0.4.2", "llama3_70b pretrain mxfp8 64 x gb200", "tflops_per_gpu"),
    ("v0.3.0", "llama3_70b pretrain nvfp4 64 x gb300", "tflops_per_gpu"),
    ("v0.3.0", "llama3_70b pretrain nvfp4 64 x gb200", "tflops_per_gpu"),
    ("v0.4.0", "llama3_70b pretrain nvfp4 64 x gb300", "tflops_per_gpu"),
    ("v0.4.2", "llama3_70b pretrain nvfp4 64 x gb300", "tflops_per_gpu"),
    ("v0.5.0", "llama31_405b pretrain nvfp4 256 x gb300", "tflops_per_gpu"),
    # Megatron-Bridge counts the FLOPs of LoRA by the lengths of the sequences that its data set packs.
    ("v0.5.0", "llama3_70b lora fp8 8 x gb300", "tflops_per_gpu"),
    ("v0.5.0", "llama3_70b lora mxfp8 8 x gb300", "tflops_per_gpu"),
    ("v0.5.0", "llama3_70b lora fp8 8 x gb200", "tflops_per_gpu"),
    ("v0.5.0", "llama3_70b lora mxfp8 8 x gb200", "tflops_per_gpu"),
    ("v0.5.0", "llama3_70b lora fp8 8 x h100", "tflops_per_gpu"),
}
# FLOPs of a sequence that sources compute with and their models do not have: 16 query groups for 8; a sum of rounded
# parts with more digits than they had.
FLOPS_SLIPS = {("llama31_405b", 2.17e16), ("llama3_70b", 5.8067e14)}


def test_the_cells_that_do_not_follow_are_known() -> None:
    with (CONFIGS.root / "references/published.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    names = [row.name for row in read_references(CONFIGS.root)]
    every = [(row, name, *cell) for row, name in zip(rows, names, strict=True) for cell in judged(row)]
    wrong = [(row, name, figure) for row, name, figure, follows in every if not follows]
    flops = "stated_flops_per_sequence"
    assert (len(rows), len(every), len(wrong)) == (359, 597, 54)
    assert {(row["tag"], name, figure) for row, name, figure in wrong if figure != flops} == SLIPS
    assert {(row["model"], float(row[flops])) for row, _, figure in wrong if figure == flops} == FLOPS_SLIPS
