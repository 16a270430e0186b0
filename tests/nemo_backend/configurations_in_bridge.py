"""Inside Megatron-Bridge: resolves the configurations of many commands, in one process, as bridge_check.py does.

Run by path in Megatron-Bridge's environment. It reads a JSON list of commands from stdin, {name, arguments,
processes, variables, device}, and prints a line of versions, then one for each command: {name, problem, built}. All
classes are Bridge's and Megatron's; only Transformer Engine and a GPU are reported as installed.
"""

import contextlib
import functools
import importlib.util
import json
import os
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

BACKEND = Path(__file__).resolve().parents[2] / "nemo_backend" / "inside"


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"stepmark_{name}", BACKEND / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


worker, check = loaded("bridge_worker"), loaded("bridge_check")


def resolved(command: dict[str, Any]) -> dict[str, Any]:
    options = worker.parse(command["arguments"])
    ranks = {"WORLD_SIZE": str(command["processes"]), "RANK": "0", "LOCAL_RANK": "0"}
    name, capability = command["device"]
    device = types.SimpleNamespace(name=name, major=int(capability.partition(".")[0]))
    properties = mock.patch("torch.cuda.get_device_properties", lambda _index: device)
    with mock.patch.dict(os.environ, command["variables"] | ranks), properties:
        return resolved_here(options)


def resolved_here(options: Any) -> dict[str, Any]:
    try:
        found = worker.configuration(options)
        variables = {name: str(value) for name, value in found.env_vars.items()}
        if found.peft and not found.checkpoint.pretrained_checkpoint:
            worker.begin_with_random_weights(found)
        changed = check.resolve(found, options.settings)
    except (Exception, SystemExit) as error:
        return {"problem": f"{type(error).__name__}: {error}", "built": {}}
    if changed:
        return {"problem": changed[0], "built": {}}
    return {"problem": None, "built": facts(found), "variables": variables}


def stand_in_for_transformer_engine() -> None:
    """Quantized precisions, a precision-aware optimizer, and fused operations require it."""
    from megatron.core import utils
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer.moe import moe_utils
    from packaging.version import Version

    class FusedAdam:
        def __init__(
            self, master_weight_dtype: Any, exp_avg_dtype: Any, exp_avg_sq_dtype: Any, use_decoupled_grad: bool
        ) -> None: ...

    rope_utils.fused_apply_rotary_pos_emb = object()  # type: ignore[attr-defined]
    utils.get_te_version = lambda: Version("2.20.2")  # type: ignore[attr-defined]
    for name in vars(moe_utils):
        if name.startswith("fused_"):
            setattr(moe_utils, name, object())
    optimizers = types.ModuleType("transformer_engine.pytorch.optimizers")
    optimizers.FusedAdam = FusedAdam  # type: ignore[attr-defined]
    sys.modules[optimizers.__name__] = optimizers


def parse_each_word_once() -> None:
    """Make Hydra's slow parser parse a word that many commands have only once."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = functools.cache(OverridesParser.create().parse_override)
    OverridesParser.parse_overrides = lambda _parser, overrides: [parsed(word) for word in overrides]


def facts(found: Any) -> dict[str, Any]:
    model = found.model
    return {
        "gradient_accumulation": found.train.global_batch_size
        // (found.train.micro_batch_size * found.data_parallel_size),
        "tensor": model.tensor_model_parallel_size,
        "pipeline": model.pipeline_model_parallel_size,
        "context": model.context_parallel_size,
        "virtual_pipeline": model.virtual_pipeline_model_parallel_size or 1,
        "expert": model.expert_model_parallel_size,
        "fp8": model.fp8,
        "fp4": model.fp4,
        "bf16": model.bf16,
        "max_steps": found.train.train_iters,
        "layers": model.num_layers,
        "experts": model.num_moe_experts,
        "balanced": model.moe_router_force_load_balancing if model.num_moe_experts else None,
        "vocabulary": model.vocab_size,
        "sequence_length": model.seq_length,
        "adapters": [found.peft.dim, found.peft.alpha, found.peft.target_modules] if found.peft else None,
        "overlapped": bool(model.overlap_p2p_comm) and not model.batch_p2p_comm,
    }


def main() -> None:
    commands = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        redirect = loaded("cpu_redirect")
        redirect.install()
        redirect.before_bridge()
        import megatron.bridge
        import megatron.core

        stand_in_for_transformer_engine()
        parse_each_word_once()
    print(json.dumps({"bridge": megatron.bridge.__version__, "megatron": megatron.core.__version__}), flush=True)
    for command in commands:
        with contextlib.redirect_stdout(sys.stderr):
            answer = {"name": command["name"], **resolved(command)}
        print(json.dumps(answer, default=str), flush=True)


main()
