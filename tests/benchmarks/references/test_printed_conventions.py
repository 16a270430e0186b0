"""The convention of each TFLOP/s that Megatron-Bridge prints, from the printed tokens/s."""

from collections import Counter

import pytest

from benchmarks.configs import Configs
from benchmarks.logs.foreign import PADDED_VOCABULARY
from benchmarks.model.flops import conventions_for, flops_per_token
from benchmarks.model.ledger import attribute
from benchmarks.model.published_rows import read_references

CONFIGS = Configs()
PRINTED = [
    row for row in read_references(CONFIGS.root) if row.source.endswith("Megatron-Bridge") and row.tflops_per_gpu
]
BRIDGE = ("bridge", "bridge_0_4")  # the two ways in which Megatron-Bridge has counted models with experts

FOLLOWING = {
    ("llama3_8b", "causal"): 12,
    ("llama3_70b", "causal"): 33,
    ("llama31_405b", "causal"): 42,
    ("qwen3_30b_a3b", "bridge"): 35,
    ("qwen3_235b_a22b", "bridge"): 32,
    ("deepseek_v3", "bridge"): 32,
    ("kimi_k2", "bridge"): 4,
    ("gpt_oss_120b", "bridge_0_4"): 20,
    ("gpt_oss_120b", "bridge"): 5,
}
# Rows whose two printed figures do not agree, and by how many percent. LoRA: the lengths of packed sequences, which
# the page does not state. Otherwise: the page gives no reason.
OTHERS = {
    ("v0.2.1", "deepseek_v3 pretrain bf16 256 x gb200"): -0.3,
    ("v0.2.1", "gpt_oss_120b pretrain bf16 64 x gb200"): -0.2,
    ("v0.3.0", "gpt_oss_120b pretrain bf16 64 x gb200"): -0.2,
    ("v0.3.0", "gpt_oss_120b pretrain bf16 64 x b300"): 0.4,
    ("v0.4.0", "gpt_oss_120b pretrain bf16 64 x b300"): 0.9,
    ("v0.4.0", "llama3_70b pretrain fp8 64 x gb300"): -0.1,
    ("v0.5.0", "llama31_405b pretrain nvfp4 256 x gb300"): 0.2,
    ("v0.5.0", "llama3_70b lora fp8 8 x gb300"): -3.4,
    ("v0.5.0", "llama3_70b lora mxfp8 8 x gb300"): -3.6,
    ("v0.5.0", "llama3_70b lora fp8 8 x gb200"): -3.4,
    ("v0.5.0", "llama3_70b lora mxfp8 8 x gb200"): -3.3,
    ("v0.5.0", "llama3_70b lora fp8 8 x h100"): -3.7,
    ("v0.5.1", "gpt_oss_120b pretrain mxfp8 64 x gb300"): -0.1,
    ("v0.5.1", "gpt_oss_120b pretrain mxfp8 64 x gb200"): -0.2,
}


def test_every_printed_rate_follows_its_convention_or_is_known_not_to() -> None:
    following: Counter[tuple[str, str]] = Counter()
    others = {}
    for row in PRINTED:
        model = row.trained_model(CONFIGS)
        printed, rate = float(row.tflops_per_gpu), float(row.tokens_per_second_per_gpu)
        rounding = float(row.resolution or 1) / 2 / rate + 0.5 / printed
        names = BRIDGE if model.experts else conventions_for(row.task, model)
        found = attribute(model, row.sequence_length, printed * 1e12 / rate, rounding + PADDED_VOCABULARY, names)
        if found.convention is None:
            counted = flops_per_token(model, row.sequence_length, row.flops)
            others[row.tag, row.name] = round(100 * (found.flops_per_token / counted - 1), 1)
        else:
            assert found.convention == row.flops
            following[row.model, row.flops] += 1
    assert following == FOLLOWING
    assert others == OTHERS
    assert len(PRINTED) == sum(FOLLOWING.values()) + len(OTHERS) == 229


def test_an_older_count_of_gpt_oss_is_a_fifth_too_low() -> None:
    model = CONFIGS.model("gpt_oss_120b")
    assert flops_per_token(model, 4096, "bridge") / flops_per_token(model, 4096, "bridge_0_4") == pytest.approx(
        1.2, abs=0.005
    )
