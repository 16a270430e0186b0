"""FLOPs a token, written out from the published definitions, against the product's; and the published rows' cells."""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import yaml

from benchmarks.configs import Configs
from benchmarks.measuring.flops import CONVENTIONS, flops_per_token
from benchmarks.references.references import cells, read_references
from tests.auditing.table import Line, Lines, Random, Size

PART, ROWS_PART = "FLOPs", "rows"
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


class Dimensions(NamedTuple):
    """Of the papers: Touvron et al. 2023, table 1; Llama Team 2024, table 3."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    groups: int
    vocabulary: int

    @property
    def head(self) -> int:
        return self.hidden // self.heads


MODELS = {
    "llama2_7b": Dimensions(32, 4096, 11008, 32, 32, 32000),
    "llama2_70b": Dimensions(80, 8192, 28672, 64, 8, 32000),
    "llama3_70b": Dimensions(80, 8192, 28672, 64, 8, 128256),
    "llama31_8b": Dimensions(32, 4096, 14336, 32, 8, 128256),
    "llama31_405b": Dimensions(126, 16384, 53248, 128, 8, 128256),
}
LENGTHS = (2048, 4096, 8192, 131072)


# --- FLOPs ------------------------------------------------------------------------------------------


def parameters(m: Dimensions) -> int:
    attention = 2 * m.hidden * m.heads * m.head + 2 * m.hidden * m.groups * m.head
    layer = attention + 3 * m.hidden * m.ffn + 2 * m.hidden
    return m.layers * layer + 2 * m.vocabulary * m.hidden + m.hidden


def own_flops(m: Dimensions, length: int, convention: str) -> Fraction:
    """Six a weight and token; and the attention core, whole or halved."""
    projections = 2 * m.hidden * m.heads * m.head * (1 + Fraction(m.groups, m.heads))
    matmuls = 6 * (m.layers * (projections + 3 * m.hidden * m.ffn) + m.vocabulary * m.hidden)
    core = 12 * m.layers * m.heads * m.head * length
    table = m.vocabulary * m.hidden
    by_name = {
        "recipe": matmuls + core,
        "causal": matmuls + Fraction(core, 2),
        "palm": Fraction(6 * parameters(m) + core),
        "torchtitan": Fraction(6 * (parameters(m) - table) + core),
        "lora": Fraction(2, 3) * (matmuls + Fraction(core, 2)),
    }
    return by_name[convention]


def flops_lines(size: Size, random: Random) -> Lines:  # noqa: ARG001 - nothing is drawn
    configs = Configs()
    cases = [(name, length, one) for name in MODELS for length in LENGTHS for one in CONVENTIONS]
    off = max(
        abs(Fraction(flops_per_token(configs.model(name), length, one)) / own_flops(MODELS[name], length, one) - 1)
        for name, length, one in cases
    )
    what = (
        f"FLOPs a token, {len(MODELS)} models, {len(LENGTHS)} lengths, {len(CONVENTIONS)} conventions: farthest apart"
    )
    yield Line(
        PART, what, "rounding of a float", f"{float(off):.1g} of {len(cases)} cases", off < Fraction(1, 10**14)
    )


# --- the published rows -------------------------------------------------------------------------------


class Range(NamedTuple):
    """What a printed number may have been before it was rounded; and what follows from such."""

    low: Fraction
    high: Fraction

    def meets(self, other: "Range") -> bool:
        return self.low <= other.high and other.low <= self.high

    def times(self, other: "Range") -> "Range":
        return Range(self.low * other.low, self.high * other.high)

    def over(self, other: "Range") -> "Range":
        return Range(self.low / other.high, self.high / other.low)


def exactly(number: int | str | Fraction) -> Range:
    return Range(Fraction(number), Fraction(number))


def printed(text: str, resolution: str = "") -> Range:
    """Of the last digit, or of what the source rounds to."""
    digits = Decimal(text).as_tuple().exponent
    half = (Fraction(resolution) if resolution else Fraction(10) ** int(digits)) / 2
    return Range(Fraction(text) - half, Fraction(text) + half)


def row_lines(size: Size, random: Random) -> Lines:  # noqa: ARG001 - nothing is drawn
    with (CONFIGS / "references" / "published.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    own = {(number, figure) for number, row in enumerate(rows) for figure, follows in judged(row) if not follows}
    configs = Configs()
    product = {
        (number, cell.figure)
        for number, row in enumerate(read_references(configs.root))
        for cell in cells(row, configs.model(row.model), configs.hardware(row.hardware))
        if not cell.follows
    }
    every = sum(1 for row in rows for _ in judged(row))
    yield Line(
        ROWS_PART,
        "published cells that do not follow from their step time",
        "",
        f"{len(own)} of {every} in {len(rows)} rows",
    )
    apart = "; ".join(
        f"{rows[number]['source']}, {rows[number]['model']}: {figure}" for number, figure in sorted(own ^ product)
    )
    yield Line(
        ROWS_PART, "cells on which the product says otherwise", "0",
        f"{len(own ^ product)}; the product names {len(product)}" + (f" ({apart})" if apart else ""), own == product,
    )  # fmt: skip
    placed = sum(all(row.get(name) for name in ("tag", "file", "line")) for row in rows)
    yield Line(
        ROWS_PART,
        "rows with tag, file and line of their source",
        "all",
        f"{placed} of {len(rows)}",
        placed == len(rows),
    )
    for source, count in Counter(_origin(row) for row in rows).items():
        yield Line(ROWS_PART, f"rows of {source}", "", f"{count}")


def _origin(row: Mapping[str, str]) -> str:
    tag = row.get("tag")
    return f"{row['source'].partition(',')[0]} {tag}" if tag else row["source"]


def judged(row: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Each printed figure of a row, and whether it can follow from the others as they were before rounding."""
    tokens = exactly(int(row["sequence_length"]) * int(row["global_batch_size"]))
    gpus, speed = exactly(row["gpus"]), row.get("tokens_per_second_per_gpu", "")
    made: dict[str, Range] = {}
    if row["seconds_per_step"]:
        seconds = printed(row["seconds_per_step"])
        made["tokens_per_second_per_gpu"] = tokens.over(seconds).over(gpus)
    else:
        seconds = tokens.over(gpus).over(printed(speed, row["resolution"]))
    made["tokens_per_second"] = tokens.over(seconds)
    made["days_per_trillion_tokens"] = seconds.times(exactly(Fraction(10**12, 86_400))).over(tokens)
    if row["flops"] != "stated":
        made["stated_flops_per_sequence"] = exactly(model_flops(row))
    if row.get("tflops_per_gpu"):
        made["tflops_per_gpu"] = rate(row, exactly(model_flops(row)), seconds)
    if row["mfu_percent"]:
        stated = row["stated_flops_per_sequence"]
        used = printed(stated) if stated else exactly(model_flops(row))
        made["mfu_percent"] = rate(row, used, seconds).over(peak(row)).times(exactly(100))
    for figure, found in made.items():
        if row.get(figure):
            yield figure, printed(row[figure]).meets(found)


def rate(row: Mapping[str, str], flops: Range, seconds: Range) -> Range:
    """TFLOP/s of a GPU."""
    share = exactly(Fraction(int(row["global_batch_size"]), int(row["gpus"]) * 10**12))
    return flops.times(share).over(seconds)


def model_flops(row: Mapping[str, str]) -> Fraction:
    """Of a sequence."""
    if row["flops"] == "stated":
        return Fraction(row["stated_flops_per_sequence"])
    length = int(row["sequence_length"])
    return own_flops(MODELS[alike(row["model"])], length, row["flops"]) * length


def alike(model: str) -> str:
    """Llama 3, 3.1 and 3.3 of one size have the same dimensions."""
    return {"llama31_70b": "llama3_70b", "llama33_70b": "llama3_70b", "llama3_8b": "llama31_8b"}.get(model, model)


def peak(row: Mapping[str, str]) -> Range:
    """Dense TFLOP/s as the datasheet prints it, so rounded too: sources say 989 and compute with 989.4."""
    path = CONFIGS / "hardware" / f"{row['hardware']}.yml"
    return printed(f"{yaml.safe_load(path.read_text(encoding='utf-8'))['peaks'][row['dtype']]['tflops']:g}")
