"""Inside NeMo: builds the objects of many plans for GPUs, in one process, as `worker.py --check` does on a node.

    objects_in_nemo.py [FOLDER OF AN OTHER NEMO]

Run by path in NeMo's environment. It reads a JSON list of plans from stdin, {name, arguments, gpus_here, capability},
and prints a line of versions, then one for each plan: {name, problem, built}. All classes are NeMo's and Megatron's,
except:

- a GPU: how many there are and of which compute capability; requests for CUDA while importing (cpu_redirect.py)
- Transformer Engine: that it is there (HAVE_TE of the overlap, the fused rotary embedding); nothing of it is called
"""

import contextlib
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

sys.path[:0] = sys.argv[1:]
BACKEND = Path(__file__).resolve().parents[2] / "nemo_backend" / "inside"


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"stepmark_{name}", BACKEND / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


worker, check, build = loaded("worker"), loaded("nemo_check"), loaded("build")


def stand_in_for_transformer_engine() -> None:
    importlib.import_module("nemo.collections.llm")  # before the overlap, which imports it in a circle
    overlap = importlib.import_module("nemo.lightning.pytorch.callbacks.megatron_comm_overlap")
    rotary = importlib.import_module("megatron.core.models.common.embeddings.rope_utils")
    overlap.HAVE_TE = True  # type: ignore[attr-defined]
    rotary.fused_apply_rotary_pos_emb = object()  # type: ignore[attr-defined]


def built(plan: dict[str, Any]) -> dict[str, Any]:
    import torch
    from megatron.core import num_microbatches_calculator

    num_microbatches_calculator.unset_num_microbatches_calculator()
    options = worker.parse(plan["arguments"])
    worker.join_processes(options)
    try:
        settings = build.grouped(options.settings)
        with mock.patch.object(torch.cuda, "device_count", lambda: plan["gpus_here"]):
            given = worker.objects(options, build, [], None)
        with mock.patch.object(torch.cuda, "get_device_capability", lambda *_: tuple(plan["capability"])):
            check.started(given)
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}", "built": {}}
    changed = check.overruled(settings, given["model"].config, build)
    return {"problem": changed[0] if changed else None, "built": facts(given)}


def facts(given: dict[str, Any]) -> dict[str, Any]:
    from megatron.core import num_microbatches_calculator

    strategy, config = given["trainer"].strategy, given["model"].config
    return {
        "gradient_accumulation": num_microbatches_calculator.get_num_microbatches(),
        "tensor": config.tensor_model_parallel_size,
        "pipeline": config.pipeline_model_parallel_size,
        "context": config.context_parallel_size,
        "fp8": config.fp8,
        "bf16": config.bf16,
        "world": strategy.cluster_environment.world_size(),
        "max_steps": given["trainer"].max_steps,
        "adapters": type(given["peft"]).__name__ if "peft" in given else None,
    }


def main() -> None:
    plans = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        loaded("cpu_redirect").install()
        stand_in_for_transformer_engine()
    import megatron.core
    import nemo

    print(json.dumps({"nemo": nemo.__version__, "megatron": megatron.core.__version__}))
    for plan in plans:
        with contextlib.redirect_stdout(sys.stderr):
            answer = {"name": plan["name"], **built(plan)}
        print(json.dumps(answer), flush=True)


main()
