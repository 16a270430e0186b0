"""FLOPs and parameters of all models with experts against the functions of MaxText and Megatron-Bridge.

python -m pytest -m every_program tests/benchmarks/model/test_framework_counts.py
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.configs import Configs
from benchmarks.model.flops import active_parameter_count, flops_per_token, parameter_count
from benchmarks.values import Model
from jax_backend import BACKEND as JAX
from launch.environments import venvs
from nemo_backend import BACKEND as NEMO

pytestmark = [pytest.mark.slow(seconds=60), pytest.mark.every_program]

PROGRAM = Path(__file__).with_name("framework_counts.py")
LENGTHS = (4096, 8192)
CONFIGS = Configs()
MODELS = [model for model in map(CONFIGS.model, CONFIGS.names("models")) if model.experts]


def counted(python: Path, *arguments: str, given: dict[str, Any] | None = None) -> dict[str, float]:
    done = subprocess.run(
        [python, "-P", PROGRAM, *arguments],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        env={"JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE", "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("model", [one for one in MODELS if not one.name.endswith("_tiny")], ids=lambda m: m.name)
def test_maxtext_counts_the_same(model: Model, length: int) -> None:
    python = venvs.ensure(JAX.environment("maxtext", "cpu"))
    settings = [f"{name}={value}" for name, value in model.backend_settings["jax"].items()]
    found = counted(python, "maxtext", str(length), *settings, f"mtp_num_layers={model.mtp_modules}")
    assert found["flops"] == pytest.approx(flops_per_token(model, length, "maxtext"), rel=1e-12)
    assert found["parameters"] == parameter_count(model)
    assert active_parameter_count(model) < parameter_count(model)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_megatron_bridge_counts_the_same(model: Model, length: int) -> None:
    python = venvs.ensure(NEMO.environment("bridge", "cpu"))
    found = counted(python, "bridge", str(length), given=dimensions(model))
    assert found["flops"] == pytest.approx(flops_per_token(model, length, "bridge"), rel=1e-12)


def dimensions(model: Model) -> dict[str, Any]:
    """A model's dimensions as the function reads them from Bridge's configuration."""
    experts, latent, window = model.experts, model.attention.latent, model.attention.window
    assert experts is not None
    found: dict[str, Any] = {
        "num_layers": model.layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.ffn_hidden_size,
        "moe_ffn_hidden_size": experts.ffn_hidden_size,
        "num_attention_heads": model.attention_heads,
        "num_query_groups": None if latent else model.query_groups,
        "kv_channels": model.head_dim,
        "vocab_size": model.vocabulary_size,
        "make_vocab_size_divisible_by": 128,
        "num_moe_experts": experts.count,
        "moe_router_topk": experts.active,
        "moe_layer_freq": [0] * model.dense_layers + [1] * (model.layers - model.dense_layers),
        "moe_shared_expert_intermediate_size": experts.shared * experts.ffn_hidden_size or None,
        "mtp_num_layers": model.mtp_modules or None,
        "multi_latent_attention": latent is not None,
    }
    if latent:
        found |= {"q_lora_rank": latent.query_rank, "kv_lora_rank": latent.key_value_rank}
        found |= {"qk_head_dim": latent.unrotated_head_dim, "qk_pos_emb_head_dim": latent.rotated_head_dim}
        found |= {"v_head_dim": latent.value_head_dim}
    if window:
        found |= {"window_size": (window.tokens - 1, 0), "window_attn_skip_freq": window.global_every}
    return found
