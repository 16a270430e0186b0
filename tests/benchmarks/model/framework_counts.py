"""Inside MaxText's or Megatron-Bridge's environment: prints the framework's own FLOPs per token and parameters.

Run by path with the framework's name, a sequence length, and for MaxText the settings of a model. Bridge's function
is executed from its source, because importing it needs a GPU's libraries. It reads the model's dimensions from stdin.
"""

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def by_maxtext(length: int, settings: list[str]) -> dict[str, float]:
    import jax
    import maxtext
    import numpy as np
    from flax import nnx
    from flax.core.spmd import logical_axis_rules
    from maxtext.configs import pyconfig
    from maxtext.utils import maxtext_utils, model_creation_utils

    base = str(Path(maxtext.__file__).parent / "configs" / "base.yml")
    given = ["hardware=cpu", "run_name=count", "base_output_directory=.", "dataset_type=synthetic", "megablox=false"]
    given += ["enable_checkpointing=false", "async_checkpointing=false", "skip_jax_distributed_system=true"]
    given += [f"max_target_length={length}", "per_device_batch_size=1", "attention=dot_product", *settings]
    found = pyconfig.initialize(["count", base, *given])
    teraflops, _, _ = maxtext_utils.calculate_tflops_training_per_device(found, log=False)
    mesh = maxtext_utils.get_mesh_from_config(found, jax.devices())
    with jax.set_mesh(mesh), logical_axis_rules(found.logical_axis_rules):
        _, model = model_creation_utils.create_nnx_abstract_model(found, mesh)
    leaves = jax.tree_util.tree_leaves(nnx.state(model, nnx.Param))
    return {"flops": teraflops * 1e12 / length, "parameters": sum(int(np.prod(leaf.shape)) for leaf in leaves)}


def by_bridge(length: int, dimensions: dict[str, Any]) -> dict[str, float]:
    def padded(size: int, multiple: int, tensor: int, **_: Any) -> int:
        return -(-size // (multiple * tensor)) * multiple * tensor

    package = importlib.util.find_spec("megatron.bridge")
    assert package is not None
    (folder,) = package.submodule_search_locations or []
    path = Path(folder) / "training" / "utils" / "flop_utils.py"
    name = "num_floating_point_operations"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (function,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name)
    function.returns = None
    for argument in function.args.args:
        argument.annotation = None
    names: dict[str, Any] = {
        "LoRA": type("LoRA", (), {}),
        "Path": Path,
        "calculate_padded_vocab_size": padded,
        "_lora_seq_stats_cache": {},
        "_packed_data_exists": lambda _: False,
        "vit_flops": lambda *_: 0,
    }
    exec(compile(ast.Module([function], []), str(path), "exec"), names)
    model = SimpleNamespace(
        **dimensions,
        seq_length=length,
        gated_linear_unit=True,
        swiglu=True,
        tensor_model_parallel_size=1,
        moe_latent_size=None,
        experimental_attention_variant=None,
        attention_output_gate=False,
    )
    return {"flops": names[name](SimpleNamespace(model=model, peft=None, dataset=None), 1) / length}


if __name__ == "__main__":
    framework, tokens, *rest = sys.argv[1:]
    length = int(tokens)
    print(json.dumps(by_maxtext(length, rest) if framework == "maxtext" else by_bridge(length, json.load(sys.stdin))))
