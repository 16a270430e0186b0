"""Published rows recomputed in exact arithmetic, with the papers' dimensions: the product names the same cells."""

import csv
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from benchmarks.configs import Configs
from benchmarks.model.published_rows import read_references
from benchmarks.references.reference_table import cells

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
    """Rounded to the last digit, or to what the source rounds to."""
    half = (Fraction(resolution) if resolution else Fraction(10) ** int(Decimal(text).as_tuple().exponent)) / 2
    return Range(Fraction(text) - half, Fraction(text) + half)


class Dimensions(NamedTuple):
    """Of the papers: Touvron et al. 2023, table 1; Llama Team 2024, table 3."""

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
    """Of a sequence: six a weight and token, and the attention core, whole or halved."""
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
    if row["flops"] != "stated":
        made["stated_flops_per_sequence"] = exactly(model_flops(row))
    share = Fraction(int(row["global_batch_size"]), int(row["gpus"]) * 10**12)
    made["tflops_per_gpu"] = exactly(model_flops(row) * share).over(seconds)
    if row["mfu_percent"]:
        stated = row["stated_flops_per_sequence"]
        used = printed(stated) if stated else exactly(model_flops(row))
        peak = printed(f"{CONFIGS.hardware(row['hardware']).peaks[row['dtype']].tflops:g}")  # as the datasheet rounds
        made["mfu_percent"] = used.times(100 * share).over(seconds).over(peak)
    yield from ((figure, printed(row[figure]).meets(found)) for figure, found in made.items() if row[figure])


def test_the_cells_that_do_not_follow_are_those_of_the_table() -> None:
    with (CONFIGS.root / "references/published.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    every = [(number, figure, follows) for number, row in enumerate(rows) for figure, follows in judged(row)]
    product = {
        (number, cell.figure)
        for number, row in enumerate(read_references(CONFIGS.root))
        for cell in cells(row, CONFIGS.model(row.model), CONFIGS.hardware(row.hardware))
        if not cell.follows
    }
    assert (len(rows), len(every)) == (206, 579)
    assert {(number, figure) for number, figure, follows in every if not follows} == product
