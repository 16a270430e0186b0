"""Published rows: whether each printed figure follows from the row's own step time, in exact arithmetic."""

import csv
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from benchmarks.configs import Configs
from benchmarks.model.published_rows import read_references
from benchmarks.references.reference_table import cells
from tests.auditing.table import Line, Lines, Random, Size

PART = "rows"
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


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


def lines(size: Size, random: Random) -> Lines:  # noqa: ARG001 - nothing is drawn
    with (CONFIGS / "references" / "published.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    every = [(number, figure, follows) for number, row in enumerate(rows) for figure, follows in judged(row)]
    own = {(number, figure) for number, figure, follows in every if not follows}
    configs = Configs()
    product = {
        (number, cell.figure)
        for number, row in enumerate(read_references(configs.root))
        for cell in cells(row, configs.model(row.model), configs.hardware(row.hardware))
        if not cell.follows
    }
    found = f"{len(own)} of {len(every)} in {len(rows)} rows"
    yield Line(PART, "published cells that do not follow from their step time", "", found)
    apart = "; ".join(f"{rows[n]['source']}, {rows[n]['model']}: {figure}" for n, figure in sorted(own ^ product))
    found = f"{len(own ^ product)}; the product names {len(product)}" + (f" ({apart})" if apart else "")
    yield Line(PART, "cells on which the product says otherwise", "0", found, own == product)
    placed = sum(all(row[name] for name in ("tag", "file", "line")) for row in rows)
    found = f"{placed} of {len(rows)}"
    yield Line(PART, "rows with tag, file and line of their source", "all", found, placed == len(rows))
    yield from _cited(rows, size.clones)


def _cited(rows: Sequence[Mapping[str, str]], clones: Mapping[str, Path]) -> Lines:
    """The figure that a row is computed from is in the very line that it cites."""
    for source, clone in clones.items():
        own = [row for row in rows if row["source"] == source]
        missing = [
            row for row in own if _figure(row) not in _numbers(clone, row["tag"], row["file"], int(row["line"]))
        ]
        found = f"{len(own) - len(missing)} of {len(own)}"
        also = "".join(f"; not {row['tag']} {row['file']}:{row['line']}" for row in missing[:5])
        what = f"rows of {source} whose line has their step time or speed"
        yield Line(PART, what, "all", found + also, not missing)


def _figure(row: Mapping[str, str]) -> float:
    return float(row["seconds_per_step"] or row["tokens_per_second_per_gpu"])


@cache
def _text(clone: Path, tag: str, file: str) -> list[str]:
    command = ["git", "-C", str(clone), "show", f"{tag}:{file}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def _numbers(clone: Path, tag: str, file: str, line: int) -> set[float]:
    text = _text(clone, tag, file)[line - 1].replace(",", "")
    return {float(number) for number in re.findall(r"[0-9]+(?:\.[0-9]+)?", text)}


def judged(row: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Each printed figure of a row, and whether it can follow from the others as they were before rounding."""
    tokens = exactly(int(row["sequence_length"]) * int(row["global_batch_size"]))
    gpus = exactly(row["gpus"])
    made: dict[str, Range] = {}
    if row["seconds_per_step"]:
        seconds = printed(row["seconds_per_step"])
        made["tokens_per_second_per_gpu"] = tokens.over(seconds).over(gpus)
    else:
        seconds = tokens.over(gpus).over(printed(row["tokens_per_second_per_gpu"], row["resolution"]))
    made["tokens_per_second"] = tokens.over(seconds)
    made["days_per_trillion_tokens"] = seconds.times(exactly(Fraction(10**12, 86_400))).over(tokens)
    if row["flops"] != "stated":
        made["stated_flops_per_sequence"] = exactly(model_flops(row))
    if row["tflops_per_gpu"]:
        made["tflops_per_gpu"] = rate(row, exactly(model_flops(row)), seconds)
    if row["mfu_percent"]:
        stated = row["stated_flops_per_sequence"]
        used = printed(stated) if stated else exactly(model_flops(row))
        made["mfu_percent"] = rate(row, used, seconds).over(peak(row)).times(exactly(100))
    for figure, found in made.items():
        if row[figure]:
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
    return own_flops(dimensions(row["model"]), length, row["flops"]) * length


def peak(row: Mapping[str, str]) -> Range:
    """Dense TFLOP/s as the datasheet prints it, so rounded too: sources say 989 and compute with 989.4."""
    path = CONFIGS / "hardware" / f"{row['hardware']}.yml"
    return printed(f"{yaml.safe_load(path.read_text(encoding='utf-8'))['peaks'][row['dtype']]['tflops']:g}")


# --- FLOPs a token, written out from the published definitions ----------------------------------


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


def dimensions(model: str) -> Dimensions:
    """Llama 3, 3.1 and 3.3 of one size have the same dimensions."""
    same = {"llama31_70b": "llama3_70b", "llama33_70b": "llama3_70b", "llama3_8b": "llama31_8b"}
    return MODELS[same.get(model, model)]
