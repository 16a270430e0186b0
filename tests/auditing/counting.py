"""FLOPs a token, written out from the published definitions, against the product's."""

from fractions import Fraction
from typing import NamedTuple

from benchmarks.configs import Configs
from benchmarks.measuring.flops import CONVENTIONS, flops_per_token
from tests.auditing.table import Line, Lines, Random, Size

PART = "FLOPs"


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


def lines(size: Size, random: Random) -> Lines:  # noqa: ARG001 - nothing is drawn
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


def dimensions(model: str) -> Dimensions:
    """Llama 3, 3.1 and 3.3 of one size have the same dimensions."""
    same = {"llama31_70b": "llama3_70b", "llama33_70b": "llama3_70b", "llama3_8b": "llama31_8b"}
    return MODELS[same.get(model, model)]
